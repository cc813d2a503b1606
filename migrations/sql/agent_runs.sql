-- Runs of GRACE, the agent. A row holds all of a run's state, so a wait for a person needs no memory, connection or task. `confidence` is a column
-- because analysts must not read answers.
create table agent_runs (
    tenant_id uuid not null,
    id uuid not null,
    project_id text not null,
    query text not null,
    playbook text,
    collections text[] default '{}' not null,
    state text default 'queued' not null,
    plan jsonb,
    retrieval_id uuid,
    result jsonb,
    confidence double precision generated always as ((result ->> 'calibrated_confidence')::double precision) stored,
    error jsonb,
    options jsonb default '{}' not null,
    active_run_id uuid,
    cancel_requested boolean default false not null,
    plan_number integer default 0 not null,
    replan_count integer default 0 not null,
    replanned_at timestamptz,
    round_count integer default 0 not null,
    token_count integer default 0 not null,
    cost_usd double precision default 0 not null,
    event_count integer default 0 not null,
    trace_id uuid,
    feedback text,
    feedback_at timestamptz,
    feedback_answer text,
    created_at timestamptz default now() not null,
    started_at timestamptz,
    finished_at timestamptz,
    updated_at timestamptz default now() not null,
    constraint agent_runs_pkey primary key (tenant_id, id),
    constraint agent_runs_state_check check (state in ('queued', 'running', 'waiting', 'done', 'failed', 'cancelled')),
    constraint agent_runs_feedback_check check (feedback in ('right', 'wrong'))
);

create index agent_runs_created_at_idx on agent_runs (tenant_id, created_at desc, id desc);
create index agent_runs_feedback_at_idx on agent_runs (tenant_id, project_id, feedback_at) where feedback is not null;
create index agent_runs_trace_id_idx on agent_runs (tenant_id, trace_id) where trace_id is not null;

-- Steps of all plans of a run. A replan keeps the finished steps of the earlier plan under their numbers.
create table agent_steps (
    tenant_id uuid not null,
    agent_run_id uuid not null,
    plan_number integer not null,
    step_id integer not null,
    spec jsonb not null,
    state text default 'pending' not null,
    attempt_count integer default 0 not null,
    result jsonb,
    confidence double precision,
    started_at timestamptz,
    finished_at timestamptz,
    constraint agent_steps_pkey primary key (tenant_id, agent_run_id, plan_number, step_id),
    constraint agent_steps_tenant_id_agent_run_id_fkey foreign key(tenant_id, agent_run_id) references agent_runs (tenant_id, id) on delete cascade,
    constraint agent_steps_state_check check (state in ('pending', 'running', 'success', 'partial', 'failed', 'skipped'))
);

-- What happened in a run, in order. Streams read from here.
create table agent_events (
    tenant_id uuid not null,
    agent_run_id uuid not null,
    number integer not null,
    type text not null,
    data jsonb default '{}' not null,
    created_at timestamptz default now() not null,
    constraint agent_events_pkey primary key (tenant_id, agent_run_id, number),
    constraint agent_events_tenant_id_agent_run_id_fkey foreign key(tenant_id, agent_run_id) references agent_runs (tenant_id, id) on delete cascade
);

-- Questions to a person. A run has at most one that is open.
create table interventions (
    tenant_id uuid not null,
    id uuid not null,
    agent_run_id uuid not null,
    kind text not null,
    level text not null,
    step_id integer,
    message text not null,
    options text[] default '{}' not null,
    state text default 'open' not null,
    action text,
    input text,
    default_action text not null,
    actor text,
    expires_at timestamptz,
    created_at timestamptz default now() not null,
    answered_at timestamptz,
    constraint interventions_pkey primary key (tenant_id, id),
    constraint interventions_tenant_id_agent_run_id_fkey foreign key(tenant_id, agent_run_id) references agent_runs (tenant_id, id) on delete cascade,
    constraint interventions_state_check check (state in ('open', 'answered', 'expired', 'cancelled'))
);

create index interventions_agent_run_id_idx on interventions (tenant_id, agent_run_id, created_at);

-- Thresholds and calibration that a project learned from feedback. Without a row, the configured ones apply.
create table agent_calibrations (
    tenant_id uuid not null,
    project_id text not null,
    silent double precision not null,
    notify double precision not null,
    confirm double precision not null,
    temperature double precision default 1 not null,
    ece double precision,
    sample_count integer default 0 not null,
    judged_until timestamptz,
    counted_from timestamptz,
    updated_at timestamptz default now() not null,
    constraint agent_calibrations_pkey primary key (tenant_id, project_id)
);
