-- The bullets of a playbook that any of a task's latest attempts used.
with attempt as materialized (
    select t.id
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
)
select distinct m.key
from attempt a
join bullet_evaluations e on e.tenant_id = :tenant and e.trace_id = a.id and e.judge = 'outcome'
join memories m on m.tenant_id = :tenant and m.id = e.bullet_id and m.scope = :scope and m.status <> 'deleted'
