-- name: list_decisions
-- The decisions on lessons, the last first. `after_time` and `after_fingerprint` are those of the last row of the previous page.
select c.fingerprint, c.decision, c.reason, c.memory_id, c.run_id, c.updated_at decided_at, m.content text, b.key
from curated_lessons c
left join memories m on m.tenant_id = :tenant and m.id = c.memory_id
left join memories b on b.tenant_id = :tenant and b.id = c.bullet_id
where c.tenant_id = :tenant and c.scope_id = :scope
  and (cast(:decision as text) is null or c.decision = cast(:decision as text))
  and (cast(:after_time as timestamptz) is null
       or (c.updated_at, c.fingerprint) < (cast(:after_time as timestamptz), cast(:after_fingerprint as bytea)))
order by c.updated_at desc, c.fingerprint desc
limit :limit

-- name: trace_tools
-- The tools that the events of traces name, the most used first.
select u.trace_id, array_agg(u.tool_name order by u.uses desc, u.tool_name) tools
from (
    select e.trace_id, e.tool_name, count(*) uses
    from trace_events e
    where e.tenant_id = :tenant and e.trace_id = any(cast(:traces as uuid[])) and e.tool_name is not null
    group by e.trace_id, e.tool_name
) u
group by u.trace_id

-- name: bullet_tools
-- The tools of the last traces that taught each bullet.
select b.id, array_agg(distinct e.tool_name) tools
from unnest(cast(:bullets as uuid[])) b(id)
cross join lateral (
    select l.target_id
    from memory_links l
    where l.tenant_id = :tenant and l.source_id = b.id and l.relation = 'witnessed_by' and l.target_kind = 'trace'
    order by l.created_at desc, l.target_id desc
    limit :max_traces
) t
join trace_events e on e.tenant_id = :tenant and e.trace_id = t.target_id and e.tool_name is not null
group by b.id

-- name: count_tasks
-- The number of tasks whose traces taught each bullet. A trace without a task is one of its own.
select l.source_id, count(distinct coalesce(t.task_key, t.id::text)) tasks
from memory_links l
join traces t on t.tenant_id = :tenant and t.id = l.target_id
where l.tenant_id = :tenant and l.source_id = any(cast(:bullets as uuid[])) and l.relation = 'witnessed_by' and l.target_kind = 'trace'
group by l.source_id

-- name: traces_with_attempts
-- The task of each trace, and the number of attempts at it and of successful ones.
select t.id, t.task_description, count(a.id) attempts, count(a.id) filter (where a.effective_outcome = 'success') successes
from traces t
left join traces a on a.tenant_id = :tenant and a.project_id = t.project_id and a.task_key = t.task_key and a.duplicate_of is null
where t.tenant_id = :tenant and t.id = any(cast(:traces as uuid[]))
group by t.tenant_id, t.id

-- name: bullet_titles
-- The active bullets, or those that wait for confirmation, the most useful first.
select m.key, m.title, m.when_to_use, m.content
from memories m
where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null
  and case when cast(:waiting as bool) then m.awaiting_confirmation else m.status = 'active' end
order by m.usefulness desc, m.observation_count desc, m.seq
limit :limit

-- name: proposals
-- The deltas of the newest proposals in these states.
select p.deltas
from playbook_proposals p
where p.tenant_id = :tenant and p.scope_id = :scope and p.state = any(cast(:states as text[]))
order by p.created_at desc
limit :limit

-- name: deleting_versions
-- The versions among these that deleted the whole playbook.
select v.version
from playbook_versions v
where v.tenant_id = :tenant and v.scope_id = :scope and v.version = any(cast(:versions as int[])) and v.change_type = 'delete'

-- name: duplicate_bullets
-- The keys of active bullets with the same fingerprint, without pinned ones. The bullet with the most verdicts and observations is the
-- first of its group.
select array_agg(m.key order by m.helpful + m.harmful + m.observation_count desc, m.key) bullet_keys
from memories m
where m.tenant_id = :tenant and m.scope_id = :scope and m.key is not null and m.status = 'active' and not m.pinned
group by m.fingerprint
having count(*) > 1
order by min(m.seq)
