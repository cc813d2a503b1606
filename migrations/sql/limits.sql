-- The record of administrative acts, and the shared counters of rate limits.

create table audit_log (
    tenant_id uuid not null,
    id uuid not null,
    action text not null,
    target text not null,
    actor text not null,
    details jsonb not null default '{}',
    created_at timestamptz not null default now(),
    primary key (tenant_id, id)
);
create index audit_log_created_at_idx on audit_log (tenant_id, created_at desc, id desc);

-- Requests of one caller in one period. `name` has the ID of an API key or a tenant, or the hash of an address; no tenant's data.
-- A crash may empty the table, which only forgets the requests of the current period.
create unlogged table rate_limit_counters (
    name text not null,
    period bigint not null,
    request_count integer not null,
    expires_at timestamptz not null,
    primary key (name, period)
);
create index rate_limit_counters_expires_at_idx on rate_limit_counters (expires_at);
grant select, insert, update, delete on rate_limit_counters to hansei_app, hansei_worker;
