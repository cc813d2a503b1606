-- What evaluators said of traces. No foreign key to runs: a run may be erased, what it found stays.
create table trace_evaluations (
    tenant_id uuid not null,
    trace_id uuid not null,
    evaluator text not null,
    criterion text not null,
    score double precision not null,
    reasons text[] default '{}' not null,
    run_id uuid,
    created_at timestamptz default now() not null,
    constraint trace_evaluations_pkey primary key (tenant_id, trace_id, evaluator, criterion),
    constraint trace_evaluations_score_check check (score between 0 and 1),
    constraint trace_evaluations_tenant_id_trace_id_fkey foreign key (tenant_id, trace_id)
        references traces (tenant_id, id) on delete cascade
);
