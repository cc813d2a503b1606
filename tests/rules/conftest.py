"""Two tenants that use everything there is, and connections as each role."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI

from memory_api.core.db import Sessions
from memory_api.evaluation_reports.schemas import CREATE_EXAMPLE as REPORT
from memory_api.playbooks.queries import count_uses
from memory_api.runtime import Runtime
from tests.conftest import Database, create_test_tenant

TRACE = {
    "external_id": "the-same",
    "task_key": "task",
    "playbook": "learnt",
    "outcome": "failure",
    "task_description": "Fetch the report",
    "events": [
        {"event_type": "user_message", "content": "Fetch the report"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report)"},
        {"event_type": "error_event", "tool_name": "fetch", "content": "connection timed out"},
    ],
    "error": {"category": "timeout_error", "message": "connection timed out"},
}
MEMORY = {"content": "Ask for the report in pages", "tags": ["paging"]}


NOT_FILLED = {
    "llm_calls",
    "llm_replies",
    "budget_alerts",
    "budget_reservations",
    "budget_totals",
    "inbox_lessons",
    "maintenance_tasks",
    "entities",
    "memory_entities",
    "memory_clusters",
    "retention_policies",
    "sql_credentials",
    "tombstones",
    "erasures",
    "document_parts",
}
"""Tables that the two tenants' use of the service does not reach or empties again."""


@dataclass(frozen=True)
class TwoTenants:
    """Two tenants with the same data."""

    mine: UUID
    other: UUID


@pytest.fixture(scope="module")
async def two_tenants(
    app: FastAPI,
    runtime: Runtime,
    owner: Sessions,
    drain: Callable[[UUID], Awaitable[int]],
) -> TwoTenants:
    """Filled through the API and the worker, so that every table has rows of both. The tests of a
    file share them and roll back what they change."""
    tenants = [await create_test_tenant(owner), await create_test_tenant(owner)]
    transport = httpx2.ASGITransport(app=app)
    for tenant in tenants:
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://hansei", headers=tenant.auth()
        ) as api:
            once = {"Idempotency-Key": "once"}
            (await api.post("/api/v1/traces", json=TRACE, headers=once)).raise_for_status()
            (await api.post("/api/v1/memories", json=MEMORY)).raise_for_status()
            await use_playbook(api)
            await use_collection(api)
            await use_console(api, tenant.keys["write"])
            limit = {"items": [{"period": "day", "limit_usd": 1}]}
            (await api.put("/api/v1/budgets", json=limit)).raise_for_status()
            for path in ("/api/v1/budgets", "/api/v1/usage"):
                (await api.get(path)).raise_for_status()
            await drain(tenant.id)
            await use_agent(api, partial(drain, tenant.id))
        await drain(tenant.id)
        async with runtime.sessions.for_tenant(tenant.id) as session:  # upkeep does it later
            await count_uses(session, datetime.min.replace(tzinfo=UTC), datetime.now(UTC))
    return TwoTenants(*(tenant.id for tenant in tenants))


async def use_console(api: httpx2.AsyncClient, key: str) -> None:
    """Publish a report, log in, and save a statement on the SQL page."""
    (await api.post("/api/v1/evaluation-reports", json=REPORT)).raise_for_status()
    page = await api.get("/console/login")
    token = page.text.split('name="csrf" value="')[1].split('"')[0]
    answer = await api.post("/console/login", data={"csrf": token, "key": key})
    assert answer.status_code == 303
    token = (await api.get("/console")).text.split('name="csrf" value="')[1].split('"')[0]
    fields = {"csrf": token, "name": "one", "statement": "select 1"}
    (await api.post("/console/sql/saved", data=fields)).raise_for_status()


async def use_playbook(api: httpx2.AsyncClient) -> None:
    """A bullet that is searched for, judged, changed, and about to be changed again; a webhook."""
    url = "/api/v1/playbooks/book"
    hook = {"url": "http://127.0.0.1:9/", "event_types": ["proposal.created"]}
    webhook = (await api.post("/api/v1/webhooks", json=hook)).raise_for_status().json()
    for path, body in (
        ("/deltas", {"deltas": [{"type": "ADD", "section": "pat", "content": "Ask in pages"}]}),
        ("/search", {"query_text": "pages"}),
        ("/render", {"query_text": "pages"}),
        ("/bullets/pat-00001/verdicts", {"tag": "helpful", "reason": "It was short"}),
        ("/restore", {"version": 0}),
        ("/restore", {"version": 1}),
    ):
        (await api.post(url + path, json=body)).raise_for_status()
    (await api.patch(url, json={"review_mode": "required"})).raise_for_status()
    held = {"deltas": [{"type": "DELETE", "bullet_id": "pat-00001"}]}
    (await api.post(f"{url}/deltas", json=held)).raise_for_status()
    sent = await api.get(f"/api/v1/webhooks/{webhook['id']}/deliveries")
    assert sent.json()["items"], "the proposal is reported"
    for path in ("", "?as_of=1", "/versions", "/diff?from=0", "/bullets", "/proposals",
                 "/bullets/pat-00001/provenance", "/bullets/pat-00001/verdicts"):  # fmt: skip
        (await api.get(url + path)).raise_for_status()


async def use_collection(api: httpx2.AsyncClient) -> None:
    """A collection with a document, read on every road."""
    url = "/api/v1/collections"
    (await api.post(url, json={"name": "handbook"})).raise_for_status()
    added = await api.post(
        f"{url}/handbook/documents", params={"source": "a.txt"}, content=b"Ask in pages."
    )
    added.raise_for_status()
    for path in ("", "/handbook", "/handbook/documents"):
        (await api.get(url + path)).raise_for_status()
    found = await api.post(f"{url}/handbook/search", json={"query_text": "pages"})
    found.raise_for_status()


async def use_agent(api: httpx2.AsyncClient, work: Callable[[], Awaitable[int]]) -> None:
    """A run of the agent that asks a person, is read on every road, answered and judged."""
    url = "/api/v1/agents/runs"
    made = await api.post(url, json={"query": "How does one ask?"})
    await work()
    run = f"{url}/{made.raise_for_status().json()['id']}"
    for path in ("", "/events?follow=false", "/interventions"):
        (await api.get(run + path)).raise_for_status()
    question = (await api.get(run)).json()["intervention"]
    if question is not None:
        answered = await api.post(f"{run}/interventions/{question['id']}/answer",
                                  json={"action": "proceed"})  # fmt: skip
        answered.raise_for_status()
        await work()
    judged = await api.post(f"{run}/feedback", json={"feedback": "right"})
    judged.raise_for_status()
    (await api.get("/api/v1/agents/calibration")).raise_for_status()


@pytest.fixture
async def superuser(database: Database) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database.url("postgres"))
    yield connection
    await connection.close()


@pytest.fixture(params=["hansei_app", "hansei_worker"])
async def service(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Any]:
    """A connection as each role the service uses."""
    connection = await asyncpg.connect(database.url(request.param))
    yield connection
    await connection.close()
