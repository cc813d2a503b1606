"""Traces as the OpenAPI document shows them: sent, listed, read."""

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
    "external_id": "run-2026-11-21-0001",
    "task_key": "order-status",
    "task_description": "Tell a customer where an order is",
    "outcome": "failure",
    "events": EVENTS,
}

TRACE: Json = {
    "id": "0190d2c4-6f5e-7a31-9c11-3a55d6f0aa04",
    "project_id": "default",
    "external_id": "run-2026-11-21-0001",
    "task_key": "order-status",
    "session_id": None,
    "playbook": None,
    "task_description": "Tell a customer where an order is",
    "task_goal": None,
    "outcome": "failure",
    "state": "closed",
    "error": None,
    "language": None,
    "used_keys": [],
    "metadata": {},
    "event_count": 1,
    "same_as": None,
    "created_at": "2026-11-21T09:00:00Z",
    "closed_at": "2026-11-21T09:00:00Z",
}
STEP: Json = {
    "seq": 0,
    "event_id": "e0000",
    "event_type": "tool_response",
    "content": "Error: order not found",
    "timestamp": "2026-11-21T09:00:00Z",
    "metadata": {},
    "tool_name": "get_order",
    "error": {"message": "order not found"},
    "agent": "support",
}

WHOLE: Json = TRACE | {
    "query": "Where is order #W2378156?",
    "generated_answer": None,
    "reasoning_steps": None,
    "ground_truth": None,
    "test_report": None,
    "events": [STEP],
}
GROWN: Json = TRACE | {"state": "open", "closed_at": None, "cleaned": False}
