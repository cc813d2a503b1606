-- The outcomes among the latest attempts of a task that count and should not, or the other way round. Of the verdicts on a
-- bullet with the tag that the comparison confirms, one counts; a hash draws which, always the same one.
with attempt as materialized (
    select t.id
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.same_as is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
), told as (
    select e.trace_id, e.bullet_id, e.confirmed,
           e.tag = w.tag
           and row_number() over (partition by e.bullet_id, e.tag order by md5(e.trace_id::text)) = 1 as wanted
    from attempt a
    join bullet_evaluations e on e.tenant_id = :tenant and e.trace_id = a.id and e.judge = 'outcome'
    join unnest(cast(:bullets as uuid[]), cast(:tags as text[])) w(bullet_id, tag)
      on w.bullet_id = e.bullet_id
)
select trace_id, bullet_id, wanted
from told
where confirmed <> wanted
order by trace_id, bullet_id
