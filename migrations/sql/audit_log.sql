-- The record of administrative acts.

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
