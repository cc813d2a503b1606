-- name: insert_traces
-- New traces as a JSON array of objects with column names, including tenant_id. Skips traces with an existing external_id. Returns the
-- IDs of the stored ones.
insert into traces (
    tenant_id, id, project_id, external_id, task_key, parent_id, session_id, playbook, task_description, task_goal, outcome, state,
    error, query, generated_answer, reasoning_steps, ground_truth, test_report, used_bullet_keys, retrieval_id, related_memory_ids, language,
    tools, metadata, event_count, content_hash, created_at, updated_at, closed_at
)
select
    tenant_id, id, project_id, external_id, task_key, parent_id, session_id, playbook, task_description, task_goal, outcome, state,
    error, query, generated_answer, reasoning_steps, ground_truth, test_report, used_bullet_keys, retrieval_id, related_memory_ids, language,
    tools, metadata, event_count, content_hash, created_at, updated_at, closed_at
from json_populate_recordset(null::traces, cast(:rows as json))
on conflict do nothing
returning id

-- name: known_memories
-- Those of these IDs that are memories of a project, without deleted ones.
select m.id from memories m
where m.tenant_id = :tenant and m.project_id = :project and m.id = any(cast(:ids as uuid[])) and m.status <> 'deleted'

-- name: insert_events
-- Events of traces of one tenant: for each trace the seq of its first new event, and the events as a JSON array without defaults.
insert into trace_events (tenant_id, trace_id, seq, event_id, event_type, content, timestamp, metadata, tool_name, error, agent)
select
    cast(:tenant as uuid), trace_id, seq, coalesce(event_id, 'e' || lpad(seq::text, greatest(4, length(seq::text)), '0')),
    event_type, coalesce(content, ''), timestamp, coalesce(metadata, '{}'), tool_name, error, agent
from
    unnest(cast(:trace_id as uuid[]), cast(:first as int[]), cast(:events as text[])) sent (trace_id, first, events),
    rows from (json_to_recordset(sent.events::json) as (
        event_id text, event_type text, content text, timestamp timestamptz, metadata jsonb, tool_name text, error jsonb, agent text
    )) with ordinality event (event_id, event_type, content, timestamp, metadata, tool_name, error, agent, number),
    lateral (select cast(first + number - 1 as int) as seq) numbered
returning 1

-- name: erase_runs
-- Removes what the runs of traces stored, and ends those that did not start or finish. Their model calls keep their cost.
update runs r
set input = '{}', result = null, lease_owner = null, lease_until = null, updated_at = now(), finished_at = least(r.finished_at, now()),
    error = case when r.state in ('queued', 'running')
                 then cast('{"type": "Erased", "code": "erased", "message": "The trace of this run was erased."}' as jsonb) end,
    state = case when r.state in ('queued', 'running') then 'failed' else r.state end
where r.tenant_id = :tenant and r.trace_id = any(cast(:ids as uuid[]))
returning r.id

-- name: erase_replies
delete from llm_replies l where l.tenant_id = :tenant and l.run_id = any(cast(:ids as uuid[]))

-- name: erase_queries
-- Removes the texts of the searches and renders that traces used.
update retrievals r
set query = ''
where r.tenant_id = :tenant
  and r.id = any(array(select t.retrieval_id from traces t
                       where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[])) and t.retrieval_id is not null))

-- name: erase_responses
-- Deletes stored responses that name one of these IDs.
with named as materialized (
    select distinct m.route, m.key from response_mentions m where m.tenant_id = :tenant and m.mentioned_id = any(cast(:ids as uuid[]))
)
delete from idempotency_keys k
using named n
where k.tenant_id = :tenant and k.route = n.route and k.key = n.key

-- name: delete_agent_runs
-- Deletes the agent runs that these traces are about, with their steps, events and questions to a person. Runs that follow up on them no longer
-- have their conversation.
with recursive deleted as (
    delete from agent_runs a where a.tenant_id = :tenant and a.trace_id = any(cast(:ids as uuid[])) returning a.id
),
followers as (
    select d.id from deleted d
    union
    select a.id from followers f join agent_runs a on a.tenant_id = :tenant and a.options ->> 'previous_run_id' = f.id::text
)
update agent_runs a
set options = a.options - 'conversation'
where a.tenant_id = :tenant and a.id in (select id from followers) and not exists (select from deleted d where d.id = a.id)

-- name: copy_subjects
-- Lessons of a trace stay when it is deleted. They get its person, so that an erasure of the person still finds them.
update memories m
set metadata = jsonb_set(m.metadata, '{subject}', t.metadata -> 'subject')
from traces t
where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[])) and t.metadata ? 'subject'
  and m.tenant_id = :tenant and m.trace_id = t.id and m.content <> ''

-- name: delete_traces
-- Deletes traces with their events and evaluations.
delete from traces t where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[])) returning t.id

-- name: attempt_events
-- The first and the last events of each of these traces, with shortened contents.
select e.trace_id, e.seq, e.event_id, e.event_type, left(e.content, :length) as content, e.timestamp, e.metadata as metadata_, e.tool_name, e.error, e.agent
from unnest(cast(:ids as uuid[])) a(id)
cross join lateral (
    (select o.* from trace_events o where o.tenant_id = :tenant and o.trace_id = a.id order by o.seq limit :first)
    union
    (select o.* from trace_events o where o.tenant_id = :tenant and o.trace_id = a.id order by o.seq desc limit :last)
) e
order by e.trace_id, e.seq

-- name: trace_identities
-- What tells agent runs apart: the IDs of traces, newest first, their session with its project, those of these traces that report the same
-- run (a tool returned their ID to its agent, or both have the same request and their events were at the same time, and not of two sessions),
-- and a hash of their events without numbers and spacing. Null without a session or events.
with newest as materialized (
    select t.id, t.created_at, t.duplicate_of, t.parent_id, t.project_id || '/' || t.session_id session_name, t.query
    from traces t
    where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[]))
    order by t.created_at desc, t.id desc
    limit :most
), reports as materialized (
    select t.*, p.starts_at, p.ends_at, regexp_replace(trim(lower(left(coalesce(r.content, t.query), 10000))), '[[:space:]]+', ' ', 'g') request
    from newest t
    cross join lateral (
        select min(e.timestamp) starts_at, max(e.timestamp) ends_at from trace_events e where e.tenant_id = :tenant and e.trace_id = t.id
    ) p
    left join lateral (
        select e.content from trace_events e
        where e.tenant_id = :tenant and e.trace_id = t.id and e.event_type = 'user_message'
        order by e.seq
        limit 1
    ) r on true
)
select t.id, t.duplicate_of, t.parent_id, t.session_name,
       array(select o.id from reports o
             where o.id <> t.id
               and (exists (select from trace_events e
                            where e.tenant_id = :tenant and e.trace_id = t.id and e.event_type = 'tool_response'
                              and strpos(e.content, o.id::text) > 0)
                    or (o.request = t.request and o.starts_at <= t.ends_at and t.starts_at <= o.ends_at
                        and (o.session_name is null or t.session_name is null)))) reported_ids,
       (select md5(string_agg(md5(concat_ws('|', e.event_type, e.tool_name, trim(regexp_replace(lower(e.content), '[0-9[:space:]]+', ' ', 'g')))),
                              ',' order by e.seq))
        from trace_events e
        where e.tenant_id = :tenant and e.trace_id = t.id) events_hash
from reports t
order by t.created_at desc, t.id desc
