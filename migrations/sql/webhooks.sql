-- Addresses of a tenant that receive events. The secret signs each request, so it is stored in plain text.
-- During a rotation, the previous secret signs too.
create table webhooks (
    tenant_id uuid not null,
    id uuid not null,
    project_id text,
    url text not null,
    event_types text[] not null,
    secret text not null,
    previous_secret text,
    previous_secret_until timestamptz,
    description text,
    is_active boolean default true not null,
    created_at timestamptz default now() not null,
    updated_at timestamptz default now() not null,
    constraint webhooks_pkey primary key (tenant_id, id)
);

-- One event for one webhook, written with the change that it reports. A run sends it.
create table webhook_deliveries (
    tenant_id uuid not null,
    id uuid not null,
    webhook_id uuid not null,
    event_type text not null,
    payload jsonb default '{}' not null,
    state text default 'queued' not null,
    attempt_count integer default 0 not null,
    response_status integer,
    error text,
    run_id uuid not null,
    created_at timestamptz default now() not null,
    finished_at timestamptz,
    constraint webhook_deliveries_pkey primary key (tenant_id, id),
    constraint webhook_deliveries_tenant_id_webhook_id_fkey foreign key(tenant_id, webhook_id) references webhooks (tenant_id, id) on delete cascade,
    constraint webhook_deliveries_state_check check (state in ('queued', 'retrying', 'delivered', 'failed'))
);

create index webhook_deliveries_created_at_idx on webhook_deliveries (tenant_id, webhook_id, created_at desc, id desc);
