"""Real traces that are sent a second time change no memory, no counter and no version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from httpx2 import AsyncClient
from sqlalchemy import select

from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.paths import ROOT


def sample(*, with_ids: bool) -> list[dict[str, Any]]:
    text = (ROOT / "examples" / "traces.jsonl").read_text(encoding="utf8")
    traces = [json.loads(line) | {"playbook": "main"} for line in text.splitlines()]
    return traces if with_ids else [{k: v for k, v in t.items() if k != "id"} for t in traces]


async def send(api: AsyncClient, traces: list[dict[str, Any]]) -> None:
    body = b"".join(json.dumps(trace).encode() + b"\n" for trace in traces)
    headers = {"content-type": "application/x-ndjson"}
    sent = await api.post("/api/v1/traces?reflect=always", content=body, headers=headers)
    sent.raise_for_status()
    assert sent.json()["rejected_count"] == 0, sent.json()


async def state(runtime: Runtime, tenant: TestTenant, api: AsyncClient) -> Any:
    """All that a second pass must not change."""
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(
                MemoryRow.id,
                MemoryRow.content,
                MemoryRow.status,
                MemoryRow.helpful,
                MemoryRow.harmful,
                MemoryRow.neutral,
                MemoryRow.observation_count,
            )
            .where(MemoryRow.tenant_id == tenant.id)
            .order_by(MemoryRow.id)
        )
        memories = [tuple(row) for row in rows]
    (playbook,) = (await api.get("/api/v1/playbooks")).json()["items"]
    return memories, playbook["version"]


@pytest.mark.parametrize("with_ids", [True, False])
async def test_traces_sent_twice_change_nothing(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, drain: Any, with_ids: bool
) -> None:
    traces = sample(with_ids=with_ids)
    await send(api, traces)
    await drain(tenant.id)
    before = await state(runtime, tenant, api)
    assert len(before[0]) > len(traces), "they taught something"
    await send(api, traces)
    await drain(tenant.id)
    assert await state(runtime, tenant, api) == before
