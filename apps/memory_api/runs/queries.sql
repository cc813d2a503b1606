-- name: insert_queued_runs
-- Queued runs of one kind with the same input, one for each of these traces.
insert into runs (tenant_id, id, project_id, kind, trace_id, input, max_attempts)
select cast(:tenant as uuid), id, project_id, :kind, trace_id, cast(:input as jsonb), cast(:max_attempts as int)
from unnest(cast(:ids as uuid[]), cast(:project_ids as text[]), cast(:trace_ids as uuid[])) as trace (id, project_id, trace_id)
returning id

-- name: finish_run
-- A run is done, if this process still has its lease.
update runs r
set state = 'done', result = cast(:result as jsonb), error = cast(:error as jsonb), engine = :engine, degraded = :degraded,
    prompt_hash = :prompt_hash, usage = cast(:usage as jsonb), lease_until = null, lease_owner = null, finished_at = now(), updated_at = now()
where r.tenant_id = :tenant and r.id = :run and r.lease_owner = :owner and r.state = 'running'
returning r.id

-- name: end_attempts
-- A run has had its last attempt: whoever gets its ticket ends it as `dead`. $1 tenant, $2 run, $3 lease holder, $4 error.
update runs set attempts = max_attempts, error = $4::jsonb, lease_owner = null, lease_until = null, updated_at = now()
where tenant_id = $1 and id = $2 and lease_owner = $3 and state = 'running'

-- name: return_run
-- A run waits again, as if this attempt had not begun. $1 tenant, $2 run, $3 lease holder.
update runs set state = 'queued', attempts = attempts - 1, lease_owner = null, lease_until = null, updated_at = now()
where tenant_id = $1 and id = $2 and lease_owner = $3 and state = 'running'

-- name: lock_unfinished_run
-- Locks a run that has not ended, so that it does not end before the transaction does.
select r.id from runs r where r.tenant_id = :tenant and r.id = :run and r.state in ('queued', 'running') for share

-- name: delete_finished_runs
delete from runs r
where r.tenant_id = :tenant and r.id = any(array(
    select o.id from runs o
    where o.tenant_id = :tenant and o.kind in ('upkeep', 'cleanup', 'maintenance', 'webhook', 'budget_alert', 'erasure')
      and o.finished_at < :before and o.state = 'done'
      and not exists (select from llm_calls c where c.tenant_id = o.tenant_id and c.run_id = o.id)
    limit 10000))
