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
