-- When each tenant needs upkeep next. Like the queue it has no content, is read across tenants and stays on the coordinator: `lane` is the
-- tenant, as in pgqueuer. The index finds the due tenants, however many are idle.
create table upkeep_schedule (
    lane uuid not null,
    due_at timestamptz not null,
    claimed_until timestamptz,
    active_at timestamptz default now() not null,
    constraint upkeep_schedule_pkey primary key (lane)
);

create index upkeep_schedule_due_at_idx on upkeep_schedule (due_at);

insert into upkeep_schedule (lane, due_at)
select id, now() + random() * interval '5 minutes' from tenants;

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

-- The ticket of a run, by its key.
create index pgqueuer_payload_idx on pgqueuer (payload) where status in ('queued', 'picked');

-- The runs that upkeep compares with the queue.
create index runs_unfinished_idx on runs (tenant_id, updated_at) where state in ('queued', 'running');

create index runs_kind_finished_at_idx on runs (tenant_id, kind, finished_at desc) where kind in ('upkeep', 'cleanup', 'maintenance');

-- The rows that upkeep deletes, by their age.
create index idempotency_keys_created_at_idx on idempotency_keys (tenant_id, created_at);

create index budget_totals_starts_on_idx on budget_totals (tenant_id, starts_on);

-- The episodes of a session, which a session summary reads.
create index memories_session_id_idx on memories (tenant_id, project_id, session_id, created_at)
    where session_id is not null and kind = 'episode';
