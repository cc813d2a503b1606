-- Every attempt to call a model. No foreign key to runs: what was spent stays known when a run is erased.
create table llm_calls (
    tenant_id uuid not null,
    id uuid not null,
    run_id uuid,
    provider text not null,
    model text not null,
    purpose text not null,
    prompt_hash text,
    status text not null,
    error text,
    detail text,
    finish_reason text,
    input_tokens integer,
    output_tokens integer,
    cached_tokens integer,
    cache_write_tokens integer,
    usd numeric,
    latency_ms integer not null,
    request_id text,
    created_at timestamptz default now() not null,
    constraint llm_calls_pkey primary key (tenant_id, id)
);

create index llm_calls_listed_idx on llm_calls (tenant_id, created_at desc, id desc);
create index llm_calls_by_run_idx on llm_calls (tenant_id, run_id);
