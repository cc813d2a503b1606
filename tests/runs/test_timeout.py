"""HANSEI_RUN_TIMEOUT limits the time of a whole run, of every kind."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api import worker
from memory_api.core.errors import InvalidRequest
from memory_api.maintenance.pruning import PRUNING
from memory_api.run_queue.port import Ticket
from memory_api.runs.chain import APPLY
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.learning.test_learning import FAILED, bullets
from tests.support.steps import InterruptedStep

SECONDS = 0.6


async def test_plan_that_waits_for_its_playbook_is_stopped(
    api: AsyncClient,
    runtime: Runtime,
    tenant: TestTenant,
    drain: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time in which a run writes counts too."""

    async def fail(*_: object) -> None:
        raise InvalidRequest("not today")

    (await api.post("/api/v1/traces", json=FAILED)).raise_for_status()
    await drain(tenant.id, {**worker.RUN_STEPS, APPLY: InterruptedStep(APPLY, fail)})
    (run,) = (await api.get("/api/v1/runs", params={"kind": APPLY})).json()["items"]
    ticket = Ticket(tenant.id, UUID(run["id"]))
    monkeypatch.setattr(runtime.settings, "run_timeout", SECONDS)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        locked = text("select from playbooks where tenant_id = :tenant for update")
        await session.execute(locked, {"tenant": tenant.id})
        assert await worker.process_ticket(runtime, ticket) is None
    (run,) = (await api.get("/api/v1/runs", params={"kind": APPLY})).json()["items"]
    assert (run["state"], run["error"]["code"]) == ("failed", "run_timeout")
    monkeypatch.undo()
    (await api.post(f"/api/v1/runs/{run['id']}/retry")).raise_for_status()
    assert await worker.process_ticket(runtime, ticket) is None
    assert len(await bullets(api)) == 1


async def test_maintenance_continues_after_the_timeout(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait(_runtime: Runtime, _run: RunRow) -> None:
        await asyncio.sleep(5)

    started = (await api.post(f"/api/v1/maintenance/{PRUNING}", json={})).json()
    ticket = Ticket(tenant.id, UUID(started["id"]))
    steps = {"maintenance": InterruptedStep("maintenance", wait)}
    monkeypatch.setattr(runtime.settings, "run_timeout", SECONDS)
    assert await worker.process_ticket(runtime, ticket, steps) is not None, "it is postponed"
    run = (await api.get(f"/api/v1/runs/{started['id']}")).json()
    assert (run["state"], run["attempt_count"]) == ("queued", 0)
    assert await worker.process_ticket(runtime, ticket) is None
    assert (await api.get(f"/api/v1/runs/{started['id']}")).json()["state"] == "done"
