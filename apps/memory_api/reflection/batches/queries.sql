-- name: waiting_count
-- The number of short runs of a playbook that wait for their reflection and belong to no batch yet, at most `max`.
select count(*) from (
    select 1 from runs r
    where r.tenant_id = :tenant and r.project_id = :project and r.playbook = :playbook and r.kind = 'reflect' and r.state = 'queued'
      and r.input ->> 'batch_run_id' is null
    limit :max
) w

-- name: is_evaluating
-- Whether another trace of the playbook is evaluated now or next. Of the unfinished runs, the 256 that are next are read, by
-- runs_unfinished_idx.
with unfinished as (
    select r.tenant_id, r.trace_id
    from runs r
    where r.tenant_id = :tenant and r.state in ('queued', 'running') and (r.state = 'queued' or r.lease_until > statement_timestamp())
      and r.kind = 'evaluate' and r.id <> :except_run
    order by r.updated_at limit 256
)
select exists (
    select from unfinished u
    join traces t on t.tenant_id = u.tenant_id and t.id = u.trace_id
    where t.tenant_id = :tenant and t.project_id = :project and t.playbook = :playbook
)

-- name: take_waiting_runs
-- Adds the oldest waiting runs of the playbook to the batch of a run. A batch that is started again takes the same runs.
update runs r
set input = r.input || jsonb_build_object('batch_run_id', cast(:leader as text))
where r.tenant_id = :tenant and r.id = any(array(
    select o.id from runs o
    where o.tenant_id = :tenant and o.project_id = :project and o.playbook = :playbook and o.kind = 'reflect' and o.state = 'queued'
      and coalesce(o.input ->> 'batch_run_id', cast(:leader as text)) = cast(:leader as text)
    order by o.input ->> 'batch_run_id' is null, o.id
    limit :max
    for update skip locked))
returning r.id

-- name: shared_reply
-- The part of a batch's answer that is about a run.
select l.text from llm_replies l where l.tenant_id = :tenant and l.run_id = :run and l.request_hash = 'shared'

-- name: share_replies
-- Stores the part of a batch's answer that is about a run, as a reply that this run has paid for. Not for a run that has ended meanwhile.
insert into llm_replies (tenant_id, run_id, request_hash, provider, model, text, finish_reason, input_tokens, output_tokens, cached_tokens,
                         cache_write_tokens, latency_ms)
select r.tenant_id, r.id, 'shared', :provider, :model, s.text, 'stop', 0, 0, 0, 0, 0
from unnest(cast(:runs as uuid[]), cast(:texts as text[])) s (run_id, text)
join runs r on r.tenant_id = :tenant and r.id = s.run_id and r.state in ('queued', 'running')
on conflict do nothing
returning run_id
