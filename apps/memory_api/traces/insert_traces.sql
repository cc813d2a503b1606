-- Many new traces, given as JSON with the names of the columns; every one has its tenant_id. Answers the ids of those that
-- are stored: one whose external_id is taken is not.
insert into traces (
    tenant_id, id, project_id, external_id, task_key, parent_id, session_id, playbook, task_description, task_goal, outcome, state,
    error, query, generated_answer, reasoning_steps, ground_truth, test_report, used_keys, render_id, related_memory_ids, language,
    metadata, event_count, content_hash, created_at, updated_at, closed_at
)
select
    tenant_id, id, project_id, external_id, task_key, parent_id, session_id, playbook, task_description, task_goal, outcome, state,
    error, query, generated_answer, reasoning_steps, ground_truth, test_report, used_keys, render_id, related_memory_ids, language,
    metadata, event_count, content_hash, created_at, updated_at, closed_at
from json_populate_recordset(null::traces, cast(:rows as json))
on conflict do nothing
returning id
