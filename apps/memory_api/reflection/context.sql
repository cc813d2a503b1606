-- name: task_knowledge
-- What was learnt from the newest attempts of a task (`max_attempts`), newest first: lessons, and the newest hints that reflections noted for this task only, also those
-- of `keep_task_hint`. A newer hint replaces the older ones. `of_group` says that a lesson was learnt from several attempts together. OFFSET 0: one look-up by key per attempt, whatever the statistics say.
with learnt as materialized (
    select m.*
    from (
        select a.id from traces a
        where a.tenant_id = :tenant and a.project_id = :project and a.task_key = :task
        order by a.created_at desc limit :max_attempts
    ) t
    cross join lateral (
        select o.id, o.seq, o.kind, o.created_at, coalesce((o.metadata ->> 'of_group')::boolean, false) of_group,
               case when o.kind in ('reflection', 'episode') then o.metadata ->> 'task_hint' else o.content end content
        from memories o
        where o.tenant_id = :tenant and o.trace_id = t.id and o.status = 'active' and o.kind in ('reflection', 'strategy', 'insight', 'episode')
        offset 0
    ) m
    where m.content is not null
)
(select id, kind, content, of_group from learnt where kind not in ('reflection', 'episode') order by created_at desc, seq desc limit :max_lessons)
union all
(select id, kind, content, of_group from learnt where kind in ('reflection', 'episode') order by created_at desc, id desc limit :max_hints)

-- name: keep_task_hint
-- The hint of a reflection that repeats a known one, which may be of another task, stays with the episode of its own trace.
update memories set metadata = metadata || jsonb_build_object('task_hint', cast(:hint as text))
where tenant_id = :tenant and trace_id = :trace and kind = 'episode'

-- name: bullets_of_lessons
-- The decisions on lessons, with the active bullets that the lessons became: the bullet itself, or the one that it was merged into.
select c.memory_id, c.decision, b.id bullet_id, coalesce(b.when_to_use, '') when_to_use, b.content
from curated_lessons c
left join memory_links l on l.tenant_id = :tenant and l.relation = 'supersedes' and l.target_kind = 'memory'
  and l.target_id = c.bullet_id
left join memories b on b.tenant_id = :tenant and b.status = 'active' and b.kind = 'bullet'
  and b.id in (c.bullet_id, l.source_id)
where c.tenant_id = :tenant and c.memory_id = any(:lessons)
order by c.memory_id, b.seq
