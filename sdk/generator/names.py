"""The resources of the client: which method of which resource is which operation of the API.

A value that is no `operationId` is a function of `hansei/_operations.py` or `hansei/_flows.py`. It
describes a request or combines several. With `:async`, the service answers at once and a worker
does the work. Sync and async methods come from the same lines.
"""

from __future__ import annotations

RESOURCES: dict[str, dict[str, str]] = {
    "agents": {"execute_plan_generator": "execute_plan_generator"},
    "agents.calibration": {"get": "get_calibration", "reset": "reset_agent_calibration"},
    "agents.runs": {
        "create": "create_agent_run",
        "list": "list_agent_runs",
        "get": "get_agent_run",
        "get_execution": "get_agent_execution",
        "follow": "follow_agent_run",
        "cancel": "cancel_agent_run",
        "record_feedback": "record_agent_feedback",
    },
    "agents.runs.interventions": {"list": "list_interventions", "answer": "answer_intervention"},
    "analytics": {
        "list_questions": "list_questions",
        "get": "get_analytics",
        "get_csv": "get_analytics_csv",
    },
    "api_keys": {
        "list": "list_api_keys",
        "create": "create_api_key",
        "revoke": "revoke_api_key",
    },
    "audit_log": {"list": "list_audit_log"},
    "budgets": {"list": "list_budgets", "replace": "replace_budgets"},
    "collections": {
        "create": "create_collection",
        "list": "list_collections",
        "get": "get_collection",
        "delete": "delete_collection",
        "rechunk": "rechunk_collection",
        "search": "search_collection",
    },
    "collections.documents": {
        "add": "upload_document",
        "list": "list_documents",
        "get": "get_document",
        "delete": "delete_document",
    },
    "erasures": {"create": "create_erasure", "list": "list_erasures", "get": "get_erasure"},
    "evaluation_reports": {
        "create": "create_evaluation_report",
        "list": "list_evaluation_reports",
        "get": "get_evaluation_report",
        "delete": "delete_evaluation_report",
    },
    "health": {"get": "get_health", "ready": "check_readiness"},
    "maintenance": {"list": "list_maintenance_tasks", "start": "start_maintenance"},
    "memories": {
        "create": "create_memory",
        "list": "list_memories",
        "get": "get_memory",
        "update": "update_memory",
        "delete": "delete_memory",
        "search": "search_memories",
    },
    "memories.links": {"list": "list_memory_links"},
    "memories.revisions": {"list": "list_memory_revisions"},
    "playbooks": {
        "list": "list_playbooks",
        "get": "read_playbook",
        "export": "export_playbook",
        "replace": "write_playbook",
        "update": "update_playbook",
        "delete": "delete_playbook",
        "render": "render_playbook",
        "search": "search_bullets",
        "apply_deltas": "apply_deltas",
        "diff": "compare_versions",
        "restore": "restore_version",
        "consolidate": "consolidate_playbook",
    },
    "playbooks.bullets": {
        "list": "list_bullets",
        "get": "get_bullet",
        "create": "create_bullet",
        "update": "update_bullet",
        "delete": "delete_bullet",
        "get_provenance": "get_bullet_provenance",
    },
    "playbooks.bullets.verdicts": {"create": "record_verdict", "list": "list_verdicts"},
    "playbooks.bullets.versions": {"list": "list_bullet_versions"},
    "playbooks.effects": {"list": "list_bullet_effects"},
    "playbooks.lessons": {"list": "list_lessons"},
    "playbooks.proposals": {
        "list": "list_proposals",
        "accept": "accept_proposal",
        "reject": "reject_proposal",
    },
    "playbooks.versions": {"list": "list_playbook_versions"},
    "reflections": {
        "generate": "generate_reflection",
        "enqueue": "generate_reflection:async",
        "create": "create_reflection",
        "query": "query_reflections",
    },
    "retention": {"list": "list_retention", "replace": "replace_retention"},
    "runs": {
        "list": "list_runs",
        "get": "get_run",
        "retry": "retry_run",
        "wait": "wait_for_run",
        "follow": "follow_run",
        "poll_unfinished": "poll_unfinished_runs",
        "collect_finished": "collect_finished_runs",
    },
    "tenants": {
        "list": "list_tenants",
        "create": "create_tenant",
        "suspend": "suspend_tenant",
        "resume": "resume_tenant",
        "export": "export_tenant",
    },
    "traces": {
        "create": "create_trace",
        "create_many": "create_traces",
        "list": "list_traces",
        "get": "get_trace",
        "delete": "delete_trace",
        "record_outcome": "record_outcome",
        "close": "close_trace",
    },
    "traces.evaluations": {"list": "list_trace_evaluations"},
    "traces.events": {"list": "list_trace_events", "append": "append_events"},
    "trajectories": {
        "reflect": "reflect_on_trajectory",
        "enqueue": "reflect_on_trajectory:async",
    },
    "transcripts": {
        "reflect": "reflect_on_transcript",
        "enqueue": "reflect_on_transcript:async",
    },
    "usage": {"list": "list_usage"},
    "webhooks": {
        "create": "create_webhook",
        "list": "list_webhooks",
        "update": "update_webhook",
        "rotate_secret": "rotate_webhook_secret",
        "send_test_event": "send_test_event",
        "delete": "delete_webhook",
    },
    "webhooks.deliveries": {
        "list": "list_webhook_deliveries",
        "replay": "replay_webhook_delivery",
    },
    "workflow": {"run": "run_workflow"},
}

READS = frozenset(
    ("query_reflections", "render_playbook", "search_bullets", "search_collection",
     "search_memories")
)  # fmt: skip
"""Operations with a body that change nothing."""

POSITIONAL = {
    "close_trace": "outcome",
    "create_api_key": "name",
    "list_usage": "group_by",
    "query_reflections": "query_text",
    "render_playbook": "query_text",
    "run_workflow": "playbook",
    "search_bullets": "query_text",
}
"""Optional arguments that may be given by position, after the required ones."""

INTERNAL = frozenset(
    (("create_trace", "format"), ("create_trace", "outcome_from"), ("get_analytics", "format"))
)
"""Parameters that a method does not take: they belong to another one, or to its answer."""

ALSO_TEXT = frozenset(("ErrorInfo",))
"""Objects for which the service takes a text too."""

EXAMPLES = {
    "action": '"accept"',
    "agent_run_id": "run.id",
    "chunk_tokens": "400",
    "collection": '"handbook"',
    "content": '"Look up an order before changing it."',
    "deltas": '[{"type": "ADD", "section": "OTHERS", "content": "Ask for the order number."}]',
    "delivery_id": "delivery.id",
    "document_id": "document.id",
    "erasure_id": "erasure.id",
    "events": '[{"event_type": "user_message", "content": "Where is order 17?"}]',
    "feedback": '"right"',
    "intervention_id": "question.id",
    "items": "[]",
    "key": '"mis-00001"',
    "key_id": "key.id",
    "memory_id": "memory.id",
    "messages": '[{"role": "user", "content": "Where is order 17?"}]',
    "name": '"support"',
    "outcome": '"failure"',
    "playbook": '"support"',
    "proposal_id": "proposal.id",
    "query": '"Which orders are late?"',
    "query_text": '"refund of a pending order"',
    "question": '"movers"',
    "reflection_text": '"The order was looked up by the wrong ID."',
    "run_id": "run.id",
    "tag": '"helpful"',
    "target_id": "trace.id",
    "target_kind": '"trace"',
    "task": '"decay"',
    "tenant": '"acme"',
    "trace_id": "trace.id",
    "trajectory": "trajectory",
    "url": '"https://example.com/hook"',
    "webhook_id": "webhook.id",
}
"""Arguments of the examples in docstrings."""
