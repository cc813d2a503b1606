"""A stream of events does not outlive its key or its tenant."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient, Response
from sqlalchemy import text

from memory_api.auth.identity import parse_key
from memory_api.core.db import Sessions
from memory_api.grace import events
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.problems import assert_problem

RUNS = "/api/v1/agents/runs"


async def start_stream(api: AsyncClient, key: str) -> asyncio.Task[Response]:
    """A stream of an agent run that no worker executes, so that it does not end by itself."""
    started = await api.post(RUNS, json={"query": f"Question {uuid4()}"})
    url = f"{RUNS}/{started.json()['id']}/events"
    task = asyncio.create_task(api.get(url, headers={"Authorization": f"Bearer {key}"}))
    await asyncio.sleep(0.3)
    assert not task.done()
    return task


async def change(owner: Sessions, tenant: TestTenant, statement: str, **values: object) -> None:
    async with owner.for_tenant(tenant.id) as session:
        await session.execute(text(statement), {"tenant": tenant.id, **values})


async def test_streams_of_a_revoked_key_end(
    api: AsyncClient, owner: Sessions, tenant: TestTenant
) -> None:
    """Revoked in another process, so that the key cache of this one knows nothing."""
    _, secret_hash = parse_key(tenant.keys["read"])
    revoked = await start_stream(api, tenant.keys["read"])
    other = await start_stream(api, tenant.keys["write"])
    began = time.monotonic()
    revoke = "update api_keys set revoked_at = now() where secret_hash = :hash"
    await change(owner, tenant, revoke, hash=secret_hash)
    async with asyncio.timeout(10):
        assert (await revoked).status_code == 200
    assert time.monotonic() - began < events.KEY_CHECK_SECONDS + 2
    assert not other.done()
    other.cancel()
    refused = await api.get(RUNS, headers=tenant.auth("read"))
    assert refused.status_code == 401


async def test_streams_of_one_tenant_leave_connections_for_others(
    api: AsyncClient,
    http: AsyncClient,
    app: FastAPI,
    runtime: Runtime,
    tenant: TestTenant,
    make_tenant: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 1,000 streams of one read key, the process refused all other connections."""
    assert app.state.api.open_requests.limit < runtime.settings.max_connections
    monkeypatch.setattr(app.state.api.open_requests, "limit", 2)
    streams = [await start_stream(api, tenant.keys["read"]) for _ in range(2)]
    refused = await api.get(RUNS)
    assert_problem(refused, 429, "rate_limited")
    other = await http.get(RUNS, headers=(await make_tenant()).auth())
    assert other.status_code == 200
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    assert (await api.get(RUNS)).status_code == 200


async def test_streams_of_a_suspended_tenant_end(
    api: AsyncClient,
    owner: Sessions,
    tenant: TestTenant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "KEY_CHECK_SECONDS", 0.5)
    stream = await start_stream(api, tenant.keys["read"])
    await change(owner, tenant, "update tenants set status = 'suspended' where id = :tenant")
    async with asyncio.timeout(5):
        assert (await stream).status_code == 200
