-- name: insert_queued_runs
-- Queued runs of one kind with the same input, one for each of these traces.
insert into runs (tenant_id, id, project_id, kind, trace_id, input, max_attempts)
select cast(:tenant as uuid), id, project_id, :kind, trace_id, cast(:input as jsonb), cast(:max_attempts as int)
from unnest(cast(:ids as uuid[]), cast(:project_ids as text[]), cast(:trace_ids as uuid[])) run (id, project_id, trace_id)
returning 1
