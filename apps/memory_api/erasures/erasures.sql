-- name: derived_bullets
-- The bullets that were learned from any of these memories or traces, deleted ones too, and whether all of their sources are among them.
select m.id, m.key, m.status, p.project_id, p.name playbook, bool_and(l.target_id = any(cast(:ids as uuid[]))) only_from_them
from memory_links l
join memories m on m.tenant_id = :tenant and m.id = l.source_id
join playbooks p on p.tenant_id = :tenant and p.scope_id = m.scope_id
where l.tenant_id = :tenant and l.relation = 'derived_from' and m.kind = 'bullet' and m.content <> ''
  and l.source_id in (select o.source_id from memory_links o where o.tenant_id = :tenant and o.target_id = any(cast(:ids as uuid[])))
group by m.id, m.key, m.status, p.project_id, p.name
order by p.name, m.key

-- name: derived_memories
-- The session summaries and dreamed lessons that were written from any of these memories or traces, or by a model that read them. They may quote
-- each of these.
select distinct m.id
from memory_links l
join memories m on m.tenant_id = :tenant and m.id = l.source_id
where l.tenant_id = :tenant and l.relation in ('derived_from', 'read') and l.target_id = any(cast(:ids as uuid[]))
  and m.source in ('session_summary', 'dreaming') and m.content <> ''

-- name: lock_traces
select t.id from traces t where t.tenant_id = :tenant and t.id = any(cast(:ids as uuid[])) order by t.id for update

-- name: subject_traces
select t.id from traces t where t.tenant_id = :tenant and t.metadata ->> 'subject' = :subject order by t.id limit :limit

-- name: subject_memories
-- The memories of a person that still have content, deleted ones too.
select m.id from memories m
where m.tenant_id = :tenant and m.metadata ->> 'subject' = :subject and m.content <> '' order by m.id limit :limit

-- name: erase_verdicts
-- Removes the reasons of the verdicts on these bullets, and of verdicts in these traces.
update bullet_verdicts v set reason = null, evidence = '{}'
where v.tenant_id = :tenant and (v.bullet_id = any(cast(:ids as uuid[])) or v.trace_id = any(cast(:ids as uuid[])))

-- name: erase_decisions
delete from curated_lessons c
where c.tenant_id = :tenant and (c.memory_id = any(cast(:ids as uuid[])) or c.bullet_id = any(cast(:ids as uuid[])))

-- name: erase_waiting_lessons
delete from inbox_lessons i
where i.tenant_id = :tenant and (i.memory_id = any(cast(:ids as uuid[])) or i.trace_id = any(cast(:ids as uuid[])))

-- name: erase_proposals
-- Removes the deltas of proposals that come from these memories. A waiting one is rejected.
update playbook_proposals p
set deltas = '[]', sources = '{}', reason = null, decision_reason = 'Its source was erased.',
    state = case when p.state = 'waiting' then 'rejected' else p.state end, decided_at = least(p.decided_at, now())
where p.tenant_id = :tenant
  and exists (select from unnest(cast(:ids as uuid[])) e(id) where position(e.id::text in p.sources::text) > 0)

-- name: erase_curations
-- Removes the results of runs that are not about one trace and name one of these IDs.
update runs r set input = case when r.state = 'done' then '{}' else r.input end, result = null
where r.tenant_id = :tenant and r.trace_id is null and r.kind in ('curate', 'apply', 'cleanup', 'maintenance', 'trajectory', 'transcript')
  and exists (select from unnest(cast(:ids as uuid[])) e(id) where position(e.id::text in r.input::text || coalesce(r.result::text, '')) > 0)

-- name: erase_rows
select hansei_erase_rows(:tenant, :table_name, :limit)

-- name: erase_other_runs
-- Deletes the runs of an erased tenant, except the one that erases it.
delete from runs r where r.tenant_id = :tenant and r.id <> :run_id

-- name: erase_tickets
delete from tickets t where t.lane = :tenant and t.taken_by is null
