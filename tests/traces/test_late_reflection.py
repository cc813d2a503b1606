"""A trace that was stored without a reflection gets one when it is sent again and one is asked
for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from httpx2 import AsyncClient

from tests.conftest import TestTenant

TRACE = {
    "external_id": "run-1",
    "outcome": "failure",
    "events": [
        {"event_type": "tool_call", "tool_name": "query", "content": "SELECT 1"},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds"},
    ],
}


async def send(api: AsyncClient, reflect: str) -> dict[str, object]:
    answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=TRACE)
    assert answer.status_code in (200, 201)
    return answer.json()


async def test_a_duplicate_without_a_run_gets_one_when_asked(
    api: AsyncClient, tenant: TestTenant, drain: Callable[[UUID], Awaitable[int]]
) -> None:
    first = await send(api, "never")
    assert first["run_id"] is None
    assert (await send(api, "never"))["run_id"] is None
    asked = await asyncio.gather(*(send(api, "always") for _ in range(5)))
    assert len({answer["run_id"] for answer in asked}) == 1
    assert asked[0]["run_id"] is not None
    assert all(answer["duplicate"] for answer in asked)
    assert await drain(tenant.id) == 2
    assert (await send(api, "always"))["run_id"] == asked[0]["run_id"]
