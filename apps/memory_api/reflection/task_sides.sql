-- How a task's latest attempts ended with each of these bullets, and without it.
with attempt as materialized (
    select t.id, t.outcome = 'success' won
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.same_as is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
)
select e.bullet_id, count(*) with_n, count(*) filter (where a.won) with_won, g.n - count(*) without_n,
       g.won - count(*) filter (where a.won) without_won
from attempt a
join bullet_evaluations e on e.tenant_id = :tenant and e.trace_id = a.id and e.judge = 'outcome'
  and e.bullet_id = any(cast(:bullets as uuid[]))
cross join (select count(*) n, count(*) filter (where won) won from attempt) g
group by e.bullet_id, g.n, g.won
