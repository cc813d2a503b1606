-- Calls of models and their cost: budgets per project and purpose, running totals, alerts, and replies that a run has paid for.

-- Every attempt to call a model. No foreign key to runs: the cost stays known after a run is erased.
create table llm_calls (
    tenant_id uuid not null,
    id uuid not null,
    run_id uuid,
    project_id text,
    provider text not null,
    model text not null,
    purpose text not null,
    prompt_hash text,
    status text not null,
    error text,
    error_detail text,
    finish_reason text,
    input_tokens integer,
    output_tokens integer,
    cached_tokens integer,
    cache_write_tokens integer,
    cost_usd numeric,
    latency_ms integer not null,
    request_id text,
    created_at timestamptz default now() not null,
    constraint llm_calls_pkey primary key (tenant_id, id)
);

create index llm_calls_created_at_idx on llm_calls (tenant_id, created_at desc, id desc);
create index llm_calls_run_id_idx on llm_calls (tenant_id, run_id);

-- A retention period is at least a day. Younger calls cannot be deleted, so that nobody spends more than a budget by deleting them.
-- Not a restrictive policy: Citus would create a permissive one on its nodes.
create function llm_call_keep() returns trigger language plpgsql as $$
begin
    if current_user in ('hansei_app', 'hansei_worker') and old.created_at >= now() - interval '1 day' then
        return null;
    end if;
    return old;
end $$;
create trigger llm_call_keep before delete on llm_calls for each row execute function llm_call_keep();

-- What a tenant may spend on models per day or month (UTC), in US dollars or tokens. '' in project_id and purpose means all of them.
create table budgets (
    tenant_id uuid not null,
    period text not null,
    project_id text default '' not null,
    purpose text default '' not null,
    limit_usd numeric,
    limit_tokens bigint,
    allow_unknown_price boolean default false not null,
    when_spent text default 'refuse' not null,
    updated_at timestamptz default now() not null,
    constraint budgets_pkey primary key (tenant_id, period, project_id, purpose),
    constraint budgets_period_check check (period in ('day', 'month')),
    constraint budgets_limit_check check (limit_usd is not null or limit_tokens is not null),
    constraint budgets_limit_usd_check check (limit_usd >= 0),
    constraint budgets_limit_tokens_check check (limit_tokens >= 0),
    constraint budgets_when_spent_check check (when_spent in ('refuse', 'rules'))
);

-- The maximum cost of a call before it is made, and its actual cost once `settled_at` is set. `amount_usd` is null if no price is known.
create table budget_reservations (
    tenant_id uuid not null,
    id uuid not null,
    run_id uuid,
    project_id text default '' not null,
    provider text not null,
    model text not null,
    purpose text not null,
    amount_usd numeric,
    amount_tokens bigint default 0 not null,
    created_at timestamptz default now() not null,
    expires_at timestamptz not null,
    settled_at timestamptz,
    is_expired boolean default false not null,
    constraint budget_reservations_pkey primary key (tenant_id, id)
);

create index budget_reservations_created_at_idx on budget_reservations (tenant_id, created_at) include (amount_usd, expires_at, settled_at);
create index budget_reservations_open_idx on budget_reservations (tenant_id, expires_at) where settled_at is null;

-- What one period has cost, by project and purpose. A call changes the rows of its day and its month.
create table budget_totals (
    tenant_id uuid not null,
    period text not null,
    starts_on date not null,
    project_id text not null,
    purpose text not null,
    spent_usd numeric default 0 not null,
    reserved_usd numeric default 0 not null,
    spent_tokens bigint default 0 not null,
    reserved_tokens bigint default 0 not null,
    constraint budget_totals_pkey primary key (tenant_id, period, starts_on, project_id, purpose)
);

create index budget_totals_starts_on_idx on budget_totals (tenant_id, starts_on);

-- One row for each threshold that a budget has reached in a period.
create table budget_alerts (
    tenant_id uuid not null,
    period text not null,
    starts_on date not null,
    project_id text not null,
    purpose text not null,
    unit text not null,
    percent integer not null,
    limit_amount numeric not null,
    spent_amount numeric not null,
    created_at timestamptz default now() not null,
    constraint budget_alerts_pkey primary key (tenant_id, period, starts_on, project_id, purpose, unit, percent),
    constraint budget_alerts_unit_check check (unit in ('usd', 'tokens'))
);

-- A reply of a model that a run has paid for and not used yet. `text` is redacted.
create table llm_replies (
    tenant_id uuid not null,
    run_id uuid not null,
    request_hash text not null,
    provider text not null,
    model text not null,
    text text not null,
    finish_reason text not null,
    input_tokens integer not null,
    output_tokens integer not null,
    cached_tokens integer not null,
    cache_write_tokens integer not null,
    latency_ms integer not null,
    request_id text,
    created_at timestamptz default now() not null,
    constraint llm_replies_pkey primary key (tenant_id, run_id, request_hash)
);

create index llm_replies_created_at_idx on llm_replies (tenant_id, created_at);

-- A model call with its project, its trace and the playbook that it was made for, without the text of its error, which may quote the prompt.
create view llm_call_details with (security_invoker = true) as
select c.tenant_id, c.id, c.run_id, c.project_id, c.provider, c.model, c.purpose, c.prompt_hash, c.status, c.error, c.finish_reason,
       c.input_tokens, c.output_tokens, c.cached_tokens, c.cache_write_tokens, c.cost_usd, c.latency_ms, c.request_id, c.created_at,
       coalesce(c.project_id, r.project_id) project, r.trace_id, coalesce(r.playbook, t.playbook) playbook
from llm_calls c
left join runs r on r.tenant_id = c.tenant_id and r.id = c.run_id
left join traces t on t.tenant_id = r.tenant_id and t.id = r.trace_id;

-- What each playbook has cost: all calls for its traces, its curation and its workflow.
create view playbook_costs with (security_invoker = true) as
select tenant_id, project project_id, playbook, count(*) calls, coalesce(sum(input_tokens), 0) input_tokens,
       coalesce(sum(output_tokens), 0) output_tokens, coalesce(sum(cost_usd), 0) cost_usd
from llm_call_details
where playbook is not null
group by tenant_id, project, playbook;

-- What each lesson has cost: the calls for its trace, divided among the lessons of that trace. The curation of a playbook has no part in it.
create view lesson_costs with (security_invoker = true) as
select m.tenant_id, m.project_id, m.id memory_id, m.kind, m.trace_id, m.created_at, cost.calls,
       cost.input_tokens / lessons.lesson_count input_tokens, cost.output_tokens / lessons.lesson_count output_tokens,
       cost.cost_usd / lessons.lesson_count cost_usd
from memories m
cross join lateral (
    select count(*) lesson_count from memories o
    where o.tenant_id = m.tenant_id and o.trace_id = m.trace_id and o.kind in ('reflection', 'strategy', 'insight')
) lessons
cross join lateral (
    select count(*) calls, coalesce(sum(c.input_tokens), 0) input_tokens, coalesce(sum(c.output_tokens), 0) output_tokens,
           coalesce(sum(c.cost_usd), 0) cost_usd
    from runs r
    join llm_calls c on c.tenant_id = r.tenant_id and c.run_id = r.id
    where r.tenant_id = m.tenant_id and r.trace_id = m.trace_id and r.kind <> 'curate'
) cost
where m.trace_id is not null and m.kind in ('reflection', 'strategy', 'insight');

grant select on llm_call_details, playbook_costs, lesson_costs, counted_verdicts to hansei_app, hansei_worker;
