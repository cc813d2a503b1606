-- When each tenant needs upkeep next. Like the queue it has no content, is read across tenants and stays on the coordinator: `lane` is the
-- tenant, as in `tickets`. The index finds the due tenants, however many are idle.
create table upkeep_schedule (
    lane uuid not null,
    due_at timestamptz not null,
    claimed_until timestamptz,
    active_at timestamptz default now() not null,
    constraint upkeep_schedule_pkey primary key (lane)
);

create index upkeep_schedule_due_at_idx on upkeep_schedule (due_at);

grant select, insert, update, delete on upkeep_schedule to hansei_app, hansei_worker;

-- When each scheduled task of a tenant was last started, and where the task continues. The row decides that a period has one run.
create table maintenance_tasks (
    tenant_id uuid not null,
    task text not null,
    started_at timestamptz not null,
    run_id uuid,
    state jsonb default '{}' not null,
    constraint maintenance_tasks_pkey primary key (tenant_id, task)
);
