-- The bullets that any of a task's latest attempts used, and their playbooks.
with attempt as materialized (
    select t.id
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.same_as is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
)
select p.scope, p.name, array_agg(distinct m.key) keys
from attempt a
join bullet_evaluations e on e.tenant_id = :tenant and e.trace_id = a.id and e.judge = 'outcome'
join memories m on m.tenant_id = :tenant and m.id = e.bullet_id and m.status <> 'deleted'
join playbooks p on p.tenant_id = :tenant and p.scope = m.scope and p.project_id = :project and p.deleted_at is null
group by p.scope, p.name
order by p.scope
