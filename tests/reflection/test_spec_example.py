"""POST /api/v1/reflections/generate: the example of spec 5 works as printed."""

from __future__ import annotations

from httpx2 import AsyncClient

SPEC_REQUEST = {
    "project_id": "default",
    "events": [
        {"event_type": "tool_call", "content": "..."},
        {"event_type": "error_event", "content": "..."},
    ],
    "outcome": "failure",
    "error": {"error_category": "timeout_error", "error_message": "Query timeout"},
    "task_description": "Database query",
}


async def test_document_example_works_as_printed(api: AsyncClient, tenant) -> None:
    answer = await api.post(
        "/api/v1/reflections/generate", json=SPEC_REQUEST | {"tenant_id": tenant.slug}
    )
    assert answer.status_code == 200
    body = answer.json()
    assert body["reflection_id"]
    assert body["reflection_text"]
    assert body["importance"] > 0
    assert "timeout" in body["tags"]
    assert body["engine"] == "rules"
    assert body["degraded"] is False
