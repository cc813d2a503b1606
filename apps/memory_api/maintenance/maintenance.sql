-- name: list_lost_runs
-- Runs that are queued or whose lease has expired, and that have no ticket: a crash between two stores lost it, or it was deleted.
select r.id
from runs r
where r.tenant_id = :tenant and r.id <> :except_run_id
  and r.state in ('queued', 'running') and r.updated_at < now() - interval '2 minutes'
  and (r.state = 'queued' or r.lease_until < now() - interval '2 minutes')
  and not exists (
      select from pgqueuer q
      where q.status in ('queued', 'picked') and q.payload = convert_to(r.tenant_id || '/' || r.id, 'UTF8'))
limit 1000

-- name: next_upkeep
-- When something of the tenant is due next: an open trace without new events ends, or a run may have lost its ticket. At the latest in a week.
select least(
    (select min(t.updated_at) + make_interval(secs => :idle_seconds) from traces t where t.tenant_id = :tenant and t.state = 'open'),
    (select now() + interval '15 minutes'
     where exists (select from runs r where r.tenant_id = :tenant and r.state in ('queued', 'running') and r.id <> :run_id)),
    now() + interval '7 days' * (0.9 + 0.1 * random())
)

-- name: start_period
-- The start of a scheduled task, if it was not started since the beginning of its period. Exactly one caller gets a row.
insert into maintenance_tasks as t (tenant_id, task, started_at, run_id)
values (:tenant, :task, now(), :run_id)
on conflict (tenant_id, task) do update
set started_at = now(), run_id = excluded.run_id
where t.tenant_id = :tenant and t.started_at < :period_start
returning t.task

-- name: delete_idempotency_keys
-- Deletes a batch of the idempotency keys that are older than a time.
with batch as materialized (
    select k.route, k.key from idempotency_keys k where k.tenant_id = :tenant and k.created_at < :before limit :batch_size
)
delete from idempotency_keys k
using batch b
where k.tenant_id = :tenant and k.route = b.route and k.key = b.key
returning 1

-- name: delete_reservations
-- Deletes a batch of the budget reservations that are older than a time.
with batch as materialized (
    select r.id from budget_reservations r where r.tenant_id = :tenant and r.created_at < :before limit :batch_size
)
delete from budget_reservations r
where r.tenant_id = :tenant and r.id = any(array(select id from batch))
returning 1

-- name: delete_stored_replies
-- Deletes a batch of the replies of models that are older than a time.
with batch as materialized (
    select r.run_id, r.request_hash from llm_replies r where r.tenant_id = :tenant and r.created_at < :before limit :batch_size
)
delete from llm_replies r
using batch b
where r.tenant_id = :tenant and r.run_id = b.run_id and r.request_hash = b.request_hash
returning 1

-- name: delete_budget_totals
-- Deletes a batch of the totals of budgets whose period started before a time, and the alerts of these periods.
with alerts as (
    delete from budget_alerts a where a.tenant_id = :tenant and a.starts_on < cast(:before as timestamptz)::date
),
batch as materialized (
    select t.period, t.starts_on, t.project_id, t.purpose
    from budget_totals t where t.tenant_id = :tenant and t.starts_on < cast(:before as timestamptz)::date limit :batch_size
)
delete from budget_totals t
using batch b
where t.tenant_id = :tenant and t.period = b.period and t.starts_on = b.starts_on
  and t.project_id = b.project_id and t.purpose = b.purpose
returning 1

-- name: delete_retrievals
-- Deletes a batch of the retrievals that are older than a time, by the index on scope and time.
with batch as materialized (
    select o.id
    from scopes s
    cross join lateral (
        select r.id from retrievals r
        where r.tenant_id = :tenant and r.scope_id = s.id and r.created_at < :before
        limit :batch_size
    ) o
    where s.tenant_id = :tenant
    limit :batch_size
)
delete from retrievals r
where r.tenant_id = :tenant and r.id = any(array(select id from batch))
returning 1

-- name: count_problem_runs
-- Runs by state and kind that are dead, or that should have been found by maintenance: a lease that ended long ago, or no ticket.
select r.state, r.kind, count(*)
from runs r
where r.tenant_id = :tenant
  and (r.state = 'dead'
       or r.state = 'running' and r.lease_until < now() - cast(:limit as interval)
       or r.state = 'queued' and r.updated_at < now() - cast(:limit as interval)
          and not exists (
              select from pgqueuer q
              where q.lane = r.tenant_id and q.payload = convert_to(r.tenant_id || '/' || r.id, 'UTF8')))
group by r.state, r.kind

-- name: count_keys
-- API keys that are not revoked: usable, expired, and those that expire soon.
select count(*) filter (where k.expires_at is null or k.expires_at > now()) usable,
       count(*) filter (where k.expires_at <= now()) expired,
       count(*) filter (where k.expires_at > now() and k.expires_at <= now() + cast(:warning as interval)) expiring
from api_keys k
where k.tenant_id = :tenant and k.revoked_at is null
