-- name: insert_events
-- Store events of an agent run.
insert into agent_events (tenant_id, agent_run_id, number, type, data)
select :tenant, :agent_run, :before + event.position, event.type, event.data::jsonb
from unnest(cast(:types as text[]), cast(:data as text[])) with ordinality as event (type, data, position)
returning number

-- name: load_progress
select wanted.position, run.project_id, run.state, run.event_count, event.number, event.type,
    event.data, event.created_at
from unnest($2::uuid[], $3::int[]) with ordinality as wanted (agent_run_id, after, position)
join agent_runs run on run.tenant_id = $1 and run.id = wanted.agent_run_id
left join lateral (
    select e.number, e.type, e.data, e.created_at from agent_events e
    where e.tenant_id = $1 and e.agent_run_id = wanted.agent_run_id and e.number > wanted.after
    order by e.number limit $4
) event on true
order by wanted.position, event.number

-- name: find_valid_keys
select key.id
from api_keys key join tenants tenant on tenant.id = key.tenant_id
where key.tenant_id = $1 and key.id = any($2::uuid[]) and tenant.status = 'active'
  and key.revoked_at is null and (key.expires_at is null or key.expires_at > now())

-- name: load_experience
select run.query, run.feedback, run.result ->> 'overall_status', run.confidence,
    array(
        select distinct source ->> 'collection'
        from jsonb_array_elements(run.result -> 'sources') as source
        where source ->> 'collection' is not null
    )
from agent_runs run
where run.tenant_id = :tenant and run.project_id = :project and run.state = 'done'
order by run.created_at desc, run.id desc
limit :limit

-- name: start_agent_run
-- Start an agent run by :run. Its row, what its project has learned from feedback, and the names and descriptions of the collections of
-- the project, newest first. No row if it has a plan, has ended or waits, or if another run works on it.
with started as (
    update agent_runs set state = 'running', started_at = coalesce(started_at, :now)
    where tenant_id = :tenant and id = :agent_run and active_run_id = :run and state in ('queued', 'running')
      and plan is null
    returning *
)
select started.*, calibration.silent, calibration.notify, calibration.confirm, calibration.temperature,
    array(
        select array[collection.name, collection.description] from collections collection
        where collection.tenant_id = :tenant and collection.project_id = started.project_id
        order by collection.created_at desc, collection.id desc
        limit :max_collections
    ) as known_collections
from started
left join agent_calibrations calibration on calibration.tenant_id = :tenant and calibration.project_id = started.project_id

-- name: lock_agent_run
-- Lock an agent run that :run works on under the lease of :lease_owner, and that is as it was stored last, with :event_count events. No row
-- if it is not, or if a person wants to cancel it.
select agent_run.id
from agent_runs agent_run
join runs run on run.tenant_id = :tenant and run.id = agent_run.active_run_id
where agent_run.tenant_id = :tenant and agent_run.id = :agent_run and run.id = :run
    and run.lease_owner = :lease_owner and run.state = 'running' and agent_run.event_count = :event_count and not agent_run.cancel_requested
for no key update

-- name: save_progress
-- Store an agent run ($6), changed or new steps ($7) and events ($8, $9) under the conditions of `lock_agent_run`. Stores
-- nothing and returns no row if they are not met.
with locked as materialized (
    select agent_run.id
    from agent_runs agent_run
    join runs run on run.tenant_id = $1 and run.id = agent_run.active_run_id
    where agent_run.tenant_id = $1 and agent_run.id = $2 and run.id = $3 and run.lease_owner = $4 and run.state = 'running'
        and agent_run.event_count = $5 and not agent_run.cancel_requested
    for no key update
),
saved_run as (
    update agent_runs agent_run
    set plan = coalesce(saved.plan, agent_run.plan), options = saved.options, plan_number = saved.plan_number,
        token_count = saved.token_count, cost_usd = saved.cost_usd, event_count = $5 + cardinality($8::text[]), state = saved.state,
        result = saved.result, error = saved.error, active_run_id = saved.active_run_id, trace_id = saved.trace_id,
        finished_at = saved.finished_at, updated_at = saved.updated_at
    from locked, jsonb_to_record($6::text::jsonb) saved (
        plan jsonb, options jsonb, plan_number int, token_count int, cost_usd float8, state text, result jsonb, error jsonb,
        active_run_id uuid, trace_id uuid, finished_at timestamptz, updated_at timestamptz
    )
    where agent_run.tenant_id = $1 and agent_run.id = locked.id
),
saved_steps as (
    insert into agent_steps (tenant_id, agent_run_id, plan_number, step_id, spec, state, attempt_count, result, confidence, started_at,
                             finished_at)
    select $1, locked.id, step.plan_number, step.step_id, step.spec, step.state, step.attempt_count, step.result, step.confidence,
        step.started_at, step.finished_at
    from locked, jsonb_to_recordset($7::text::jsonb) step (
        plan_number int, step_id int, spec jsonb, state text, attempt_count int, result jsonb, confidence float8,
        started_at timestamptz, finished_at timestamptz
    )
    on conflict (tenant_id, agent_run_id, plan_number, step_id) do update
    set spec = excluded.spec, state = excluded.state, attempt_count = excluded.attempt_count, result = excluded.result,
        confidence = excluded.confidence, started_at = excluded.started_at, finished_at = excluded.finished_at
),
saved_events as (
    insert into agent_events (tenant_id, agent_run_id, number, type, data)
    select $1, locked.id, $5 + event.position, event.type, event.data::jsonb
    from locked, unnest($8::text[], $9::text[]) with ordinality event (type, data, position)
)
select locked.id from locked
