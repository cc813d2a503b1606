"""Examples of traces in the OpenAPI document."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

EVENTS: list[Json] = [
    {"event_type": "user_message", "content": "Where is order #W2378156?"},
    {"event_type": "tool_call", "tool_name": "get_order", "content": '{"order_id": "W2378156"}'},
    {"event_type": "tool_response", "tool_name": "get_order", "content": "Error: order not found",
     "error": "order not found"},
]  # fmt: skip
SENT: Json = {
    "external_id": "run-2026-11-21-0001", "task_key": "order-status", "outcome": "failure",
    "task_description": "Tell a customer where an order is",
    "tools": [{"name": "get_order", "description": "Look up an order by its ID", "writes": False}],
    "events": EVENTS,
}  # fmt: skip
TRACE: Json = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04", "project_id": "default",
    "external_id": "run-2026-11-21-0001", "task_key": "order-status", "session_id": None,
    "playbook": None, "task_description": "Tell a customer where an order is", "task_goal": None,
    "outcome": "failure", "conflict": None, "state": "closed", "error": None, "language": None,
    "used_bullet_keys": [], "metadata": {}, "event_count": 1, "duplicate_of": None,
    "created_at": "2026-11-21T09:00:00Z", "closed_at": "2026-11-21T09:00:00Z",
}  # fmt: skip
EVENT: Json = {
    "seq": 0, "event_id": "e0000", "event_type": "tool_response", "tool_name": "get_order",
    "content": "Error: order not found", "error": {"message": "order not found"},
    "timestamp": "2026-11-21T09:00:00Z", "metadata": {}, "agent": "support",
}  # fmt: skip
TRACE_WITH_EVENTS: Json = TRACE | {
    "query": "Where is order #W2378156?", "generated_answer": None, "reasoning_steps": None,
    "ground_truth": None, "test_report": None, "tools": SENT["tools"],
    "events": [EVENT], "next_cursor": None,
}  # fmt: skip
UPDATED_TRACE: Json = TRACE | {"state": "open", "closed_at": None, "sanitized": False}
