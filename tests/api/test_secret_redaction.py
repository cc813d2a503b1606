"""What people write themselves is kept without the secrets in it, too."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import select

from memory_api.playbooks.tables import RetrievalRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant

KEY = "sk-" + "proj-" + "a1B2_c3-" * 8
GONE = "[secret:openai_key]"
SAID = f"Log in with {KEY} first"
CLEAN = f"Log in with {GONE} first"


async def contents(api: AsyncClient) -> list[str]:
    found = (await api.get("/api/v1/playbooks/coding")).json()
    return [bullet["content"] for bullet in found["bullets"]]


async def test_bullets_of_every_route_are_redacted(api: AsyncClient) -> None:
    one = await api.post(
        "/api/v1/playbooks/coding/deltas",
        json={"deltas": [{"type": "ADD", "section": "OTHERS", "content": SAID}]},
    )
    assert one.status_code == 200
    assert one.json()["sanitized"] is True
    more = await api.post(
        "/api/v1/playbooks/coding/bullets", json={"section": "OTHERS", "content": f"Again: {SAID}"}
    )
    assert more.status_code == 201
    key = more.json()["bullet"]["id"]
    changed = await api.patch(
        f"/api/v1/playbooks/coding/bullets/{key}", json={"content": f"Anew: {SAID}"}
    )
    assert changed.status_code == 200
    assert await contents(api) == [CLEAN, f"Anew: {CLEAN}"]


@pytest.mark.parametrize(
    "body",
    [
        {"json": {"bullets": [{"id": "oth-00001", "section": "OTHERS", "content": SAID}]}},
        {"content": f"## OTHERS\n[oth-00001] helpful=0 harmful=0 :: {SAID}\n"},
    ],
    ids=["spec 2", "ACE"],
)
async def test_imported_playbook_is_redacted(api: AsyncClient, body: dict[str, Any]) -> None:
    put = await api.put("/api/v1/playbooks/coding", **body)
    assert put.status_code in (200, 201), put.text
    assert await contents(api) == [CLEAN]


async def test_memories_and_reflections_are_redacted(api: AsyncClient) -> None:
    memory = {"content": SAID, "kind": "reflection", "metadata": {KEY: {"password": "my own one"}}}
    kept = await api.post("/api/v1/memories", json=memory)
    assert kept.status_code == 201, kept.text
    found = (await api.get(f"/api/v1/memories/{kept.json()['id']}")).json()
    assert found["content"] == CLEAN
    assert found["metadata"] == {GONE: {"password": "[secret:password]"}}
    brought = await api.post(
        "/api/v1/reflections",
        json={"reflection_text": f"It said: {SAID}", "strategy_text": SAID, "importance": 0.5},
    )
    assert brought.status_code in (200, 201), brought.text
    found = (await api.get(f"/api/v1/memories/{brought.json()['reflection_id']}")).json()
    assert found["content"] == f"It said: {CLEAN}"


async def test_reasons_in_the_query_are_redacted(api: AsyncClient) -> None:
    """The reason for a deletion is stored with the trace's tombstone, the memory's revision and the
    bullet's version."""
    events = [{"event_type": "user_message", "content": "hello"}]
    trace = await api.post("/api/v1/traces?reflect=never", json={"events": events})
    memory = await api.post("/api/v1/memories", json={"content": "A", "kind": "reflection"})
    bullet = await api.post("/api/v1/playbooks/p/bullets", json={"content": "Ask first."})
    shown: list[str] = []
    for path, history in (
        (f"traces/{trace.json()['trace_id']}", "audit-log"),
        (f"memories/{memory.json()['id']}", "memories/{}/revisions"),
        (f"playbooks/p/bullets/{bullet.json()['bullet']['id']}", "playbooks/p/bullets/{}/versions"),
    ):
        deleted = await api.delete(f"/api/v1/{path}", params={"reason": SAID})
        assert deleted.status_code == 204, deleted.text
        shown.append((await api.get(f"/api/v1/{history.format(path.split('/')[-1])}")).text)
    assert [(GONE in text, KEY in text) for text in shown] == [(True, False)] * 3


async def test_stored_query_of_retrieval_is_redacted(
    api: AsyncClient, app: FastAPI, runtime: Runtime, tenant: TestTenant
) -> None:
    await api.post(
        "/api/v1/playbooks/coding/bullets", json={"section": "OTHERS", "content": "Log in first"}
    )
    path = "/api/v1/playbooks/coding/search"
    asked = await api.post(path, json={"query_text": SAID, "min_confidence": 0})
    assert asked.status_code == 200
    hidden = SAID.replace("sk-", "\\u0073k-")  # as JSON may write it
    raw = f'{{"query_text": "{hidden}", "min_confidence": 0}}'
    again = await api.post(path, content=raw, headers={"Content-Type": "application/json"})
    assert again.status_code == 200
    async with runtime.sessions.for_tenant(tenant.id) as session:
        told = await session.scalars(
            select(RetrievalRow.query).where(RetrievalRow.tenant_id == tenant.id)
        )
    assert set(told) == {CLEAN}


async def test_text_without_secret_is_stored_byte_for_byte(api: AsyncClient) -> None:
    text = "The password is required; token: IDENTIFIER_EXPECTED\r\n\t“ok”"
    made = await api.post(
        "/api/v1/playbooks/coding/bullets", json={"section": "OTHERS", "content": text}
    )
    assert made.json()["bullet"]["content"] == text
    assert made.json()["sanitized"] is False
