-- name: replace_scores
-- Replaces the scores of a trace by some evaluators, its conflict, and what a declared check says. The scores are a JSON array of objects.
with new as materialized (
    select s.evaluator, s.criterion, s.score, s.reasons, s.is_declared
    from json_to_recordset(cast(:scores as json)) s(evaluator text, criterion text, score float8, reasons text[], is_declared boolean)
),
conflicting as (
    update traces t set conflict = cast(:conflict as jsonb), check_outcome = cast(:check_outcome as text)
    where t.tenant_id = :tenant and t.id = :trace
      and (t.conflict, t.check_outcome) is distinct from (cast(:conflict as jsonb), cast(:check_outcome as text))
),
removed as (
    delete from trace_evaluations e
    where e.tenant_id = :tenant and e.trace_id = :trace and e.evaluator = any(cast(:evaluators as text[]))
      and not exists (select from new n where (n.evaluator, n.criterion) = (e.evaluator, e.criterion))
)
insert into trace_evaluations (tenant_id, trace_id, evaluator, criterion, score, reasons, is_declared, run_id)
select cast(:tenant as uuid), cast(:trace as uuid), n.evaluator, n.criterion, n.score, n.reasons, n.is_declared, cast(:run as uuid) from new n
on conflict (tenant_id, trace_id, evaluator, criterion) do update
set score = excluded.score, reasons = excluded.reasons, is_declared = excluded.is_declared, run_id = excluded.run_id, created_at = excluded.created_at

-- name: count_successes
-- The number of other successes of a playbook with the same call sequence, at most `limit`.
select count(*) from (
    select 1 from traces t
    where t.tenant_id = :tenant and t.project_id = :project and t.call_sequence = :calls
      and t.playbook is not distinct from cast(:playbook as text) and t.id <> :trace
    limit :limit
) s

-- name: record_call_sequence
update traces set call_sequence = :calls where tenant_id = :tenant and id = :trace
