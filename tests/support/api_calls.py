"""What most tests of the HTTP surface send and count."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from httpx2 import AsyncClient, Response
from sqlalchemy import text

from memory_api.runtime import Runtime

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}

TENANT_TABLES = (
    "api_keys",
    "idempotency_keys",
    "memories",
    "memory_links",
    "memory_revisions",
    "memory_vectors",
    "postings",
    "runs",
    "scopes",
    "trace_events",
    "traces",
)


def event(content: str = "ls", **more: Any) -> dict[str, Any]:
    return {"event_type": "tool_call", "tool_name": "shell", "content": content} | more


def trace(**more: Any) -> dict[str, Any]:
    """A failed run with an error in it."""
    events = [event("cat plan.txt"), event("No such file", event_type="error_event")]
    return {"outcome": "failure", "task_description": "Read the plan", "events": events} | more


def ndjson(items: Iterable[Any], end: str = "\n") -> bytes:
    return "".join(json.dumps(item, ensure_ascii=True) + end for item in items).encode()


async def send_lines(api: AsyncClient, raw: bytes, query: str = "?reflect=never") -> Response:
    return await api.post(f"/api/v1/traces{query}", content=raw, headers=NDJSON)


async def send_raw(api: AsyncClient, path: str, raw: bytes, method: str = "POST") -> Response:
    return await api.request(method, path, content=raw, headers=JSON)


async def new_trace(api: AsyncClient, *, reflect: str = "never", **more: Any) -> str:
    answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=trace(**more))
    assert answer.status_code == 201, answer.text
    return answer.json()["trace_id"]


async def new_memory(api: AsyncClient, content: str, **more: Any) -> str:
    answer = await api.post("/api/v1/memories", json={"content": content} | more)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def new_key(api: AsyncClient, *scopes: str, **more: Any) -> dict[str, str]:
    """The header of a new key of the same tenant."""
    answer = await api.post("/api/v1/keys", json={"scopes": list(scopes)} | more)
    assert answer.status_code == 201, answer.text
    return {"Authorization": f"Bearer {answer.json()['key']}"}


async def count(runtime: Runtime, tenant_id: UUID) -> dict[str, int]:
    """The rows a tenant has in every table."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        return {
            table: await session.scalar(text(f"select count(*) from {table}")) or 0
            for table in TENANT_TABLES
        }


async def pages_of(api: AsyncClient, url: str, limit: int) -> list[dict[str, Any]]:
    """The items of all pages."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        query = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        body = (await api.get(url, params=query)).raise_for_status().json()
        assert len(body["items"]) <= limit
        items += body["items"]
        cursor = body["next_cursor"]
        if cursor is None:
            return items


async def list_events(api: AsyncClient, trace_id: str) -> list[dict[str, Any]]:
    """All events of a trace, page by page."""
    events: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 200}
    while True:
        answer = await api.get(f"/api/v1/traces/{trace_id}/events", params=query)
        answer.raise_for_status()
        page = answer.json()
        events += page["items"]
        if page["next_cursor"] is None:
            return events
        query["cursor"] = page["next_cursor"]
