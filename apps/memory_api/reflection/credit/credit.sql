-- name: task_flips
-- The outcome verdicts among the latest attempts of a task that are counted and should not be, or the other way round. Of the
-- verdicts on a bullet with the tag that the comparison confirms, one counts; a hash chooses it, always the same one.
with attempts as materialized (
    select t.id
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.duplicate_of is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
), outcome_verdicts as (
    select v.trace_id, v.bullet_id, v.confirmed,
           v.tag = c.tag
           and row_number() over (partition by v.bullet_id, v.tag order by md5(v.trace_id::text)) = 1 as wanted
    from attempts a
    join bullet_verdicts v on v.tenant_id = :tenant and v.trace_id = a.id and v.judge = 'outcome'
    join unnest(cast(:bullets as uuid[]), cast(:tags as text[])) c(bullet_id, tag) on c.bullet_id = v.bullet_id
)
select trace_id, bullet_id, wanted
from outcome_verdicts
where confirmed <> wanted
order by trace_id, bullet_id

-- name: task_keys
-- The bullets that any of a task's latest attempts used, and their playbooks.
with attempts as materialized (
    select t.id
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.duplicate_of is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
)
select p.scope_id, p.name, array_agg(distinct m.key) bullet_keys
from attempts a
join bullet_verdicts v on v.tenant_id = :tenant and v.trace_id = a.id and v.judge = 'outcome'
join memories m on m.tenant_id = :tenant and m.id = v.bullet_id and m.status <> 'deleted'
join playbooks p on p.tenant_id = :tenant and p.scope_id = m.scope_id and p.project_id = :project and p.deleted_at is null
group by p.scope_id, p.name
order by p.scope_id

-- name: task_sides
-- How a task's latest attempts ended with each of these bullets, and without it.
with attempts as materialized (
    select t.id, t.effective_outcome = 'success' success
    from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.task_key = :task and t.state = 'closed'
      and t.duplicate_of is null and t.outcome in ('success', 'failure', 'error', 'timeout')
    order by t.created_at desc, t.id desc
    limit :latest
), totals as (
    select count(*) runs, count(*) filter (where success) successes from attempts
)
select v.bullet_id, count(*) with_runs, count(*) filter (where a.success) with_successes, t.runs - count(*) without_runs,
       t.successes - count(*) filter (where a.success) without_successes
from attempts a
join bullet_verdicts v on v.tenant_id = :tenant and v.trace_id = a.id and v.judge = 'outcome'
  and v.bullet_id = any(cast(:bullets as uuid[]))
cross join totals t
group by v.bullet_id, t.runs, t.successes

-- name: used
-- The playbook a trace belongs to (the one it names, else the one of its retrieval, in its own project), with what that retrieval
-- handed out.
select p.project_id, p.name, p.scope_id, p.sections, p.aliases, p.focus, r.id retrieval_id, r.version,
       coalesce(r.bullet_keys, '{}') bullet_keys
from playbooks p
left join retrievals r on r.tenant_id = :tenant and r.id = cast(:retrieval as uuid) and r.scope_id = p.scope_id
where p.tenant_id = :tenant and p.project_id = :project and p.deleted_at is null
  and case when cast(:name as text) is null then r.id is not null else p.name = :name end
