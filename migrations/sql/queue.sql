-- Random values that only the service and the owner can read, in one row. No other login can compute the names of the channels and locks.
create table installation (
    id boolean default true not null,
    channel_secret text default replace(gen_random_uuid()::text, '-', '') not null,
    lock_seed bigint default hashtextextended(gen_random_uuid()::text, 0) not null,
    constraint installation_pkey primary key (id),
    constraint installation_id_check check (id)
);
insert into installation default values;

-- `/health/ready` writes into this table and rolls back.
create table write_probes (
    id bigint generated always as identity not null,
    payload text not null,
    constraint write_probes_pkey primary key (id)
);

-- The queue of runs. Like all that is read across tenants it has no content: `lane` is the tenant of a ticket, `slots` the slots of a worker that
-- it uses, and `taken_by` the worker that delivers it. A ticket is deleted when it is done; the history of work is in `runs`.
create table tickets (
    id bigint generated always as identity not null,
    lane uuid not null,
    run_id uuid not null,
    slots text default 'work' not null,
    queued_at timestamptz default now() not null,
    due_at timestamptz default now() not null,
    taken_by uuid,
    taken_at timestamptz,
    heartbeat_at timestamptz,
    traceparent text,
    constraint tickets_pkey primary key (id),
    constraint tickets_slots_check check (slots in ('work', 'delivery', 'document'))
)
-- Rows are short-lived. The default scale factor, a fifth of the table, would vacuum too late.
with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- The first ticket of each lane.
create index tickets_lane_due_at_idx on tickets (slots, lane, due_at, id) where taken_by is null;
create index tickets_heartbeat_at_idx on tickets (slots, heartbeat_at) where taken_by is not null;
-- The ticket of a run.
create index tickets_run_id_idx on tickets (run_id);
