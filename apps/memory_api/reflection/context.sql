-- name: task_lessons
-- What was learnt from the attempts of a task, newest first. `of_group` says that it was learnt from several together.
select m.id, m.kind, m.content, coalesce((m.metadata ->> 'of_group')::boolean, false) of_group
from traces t
join memories m on m.tenant_id = :tenant and m.trace_id = t.id and m.status = 'active'
  and m.kind in ('strategy', 'insight')
where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task
order by m.created_at desc, m.seq desc
limit :most

-- name: task_hints
-- What the reflections on the attempts of a task noted for this task only. The newest one replaces the others.
select m.metadata ->> 'task_hint'
from traces t
join memories m on m.tenant_id = :tenant and m.trace_id = t.id and m.status = 'active' and m.kind = 'reflection'
where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and m.metadata ->> 'task_hint' is not null
order by m.created_at desc, m.id desc
limit :most

-- name: bullets_of_lessons
-- The active bullets that lessons became: the bullet itself, or the one that it was merged into.
select c.memory_id, b.id bullet_id, coalesce(b.when_to_use, '') when_to_use, b.content
from curated_lessons c
left join memory_links l on l.tenant_id = :tenant and l.relation = 'supersedes' and l.target_kind = 'memory'
  and l.target_id = c.bullet_id
join memories b on b.tenant_id = :tenant and b.status = 'active' and b.kind = 'bullet'
  and b.id in (c.bullet_id, l.source_id)
where c.tenant_id = :tenant and c.memory_id = any(:lessons)
order by c.memory_id, b.seq
