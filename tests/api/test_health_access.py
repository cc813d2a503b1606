"""What /health/ready tells whom, and that it says not ready on a full disk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient

from memory_api.core.db_errors import DISK_STATE
from tests.conftest import Database, TestTenant
from tests.support.problems import assert_problem

PARTS = {"database", "queue", "embedder", "model"}
FULL_DISK = (
    "create function full_disk() returns trigger language plpgsql as $$ begin"
    " raise exception 'could not extend file \"base/1/1\": No space left on device'"
    " using errcode = '53100'; end $$",
    "create trigger full_disk before insert on traces for each row"
    " when (new.tenant_id = '{tenant}') execute function full_disk()",
    "create trigger full_disk before insert on write_probes execute function full_disk()",
)


@pytest.fixture
async def stranger(app: FastAPI) -> AsyncIterator[AsyncClient]:
    transport = ASGITransport(app=app, client=("203.0.113.9", 1), raise_app_exceptions=False)
    async with AsyncClient(transport=transport, base_url="http://hansei") as client:
        yield client


async def test_stranger_learns_only_the_status(stranger: AsyncClient) -> None:
    answer = await stranger.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize("scope", ["read", "write"])
async def test_weak_key_learns_no_more(
    stranger: AsyncClient, tenant: TestTenant, scope: str
) -> None:
    answer = await stranger.get("/health/ready", headers=tenant.auth(scope))
    assert answer.json() == {"status": "ok"}


@pytest.mark.parametrize("scope", ["admin", "operator"])
async def test_administrator_sees_the_parts(
    stranger: AsyncClient, tenant: TestTenant, scope: str
) -> None:
    answer = await stranger.get("/health/ready", headers=tenant.auth(scope))
    assert answer.json().keys() == {"status", *PARTS}


async def test_invalid_key_is_a_stranger(stranger: AsyncClient) -> None:
    for key in ("nonsense", "hsk_aaaaaaaaaaaaaaaaaaaaaaaaaa_" + "x" * 43):
        answer = await stranger.get("/health/ready", headers={"Authorization": f"Bearer {key}"})
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_loopback_sees_the_parts_unless_a_proxy_is_between(http: AsyncClient) -> None:
    assert (await http.get("/health/ready")).json().keys() == {"status", *PARTS}
    answer = await http.get("/health/ready", headers={"X-Forwarded-For": "203.0.113.9"})
    assert answer.json() == {"status": "ok"}


async def test_full_disk_is_not_ready_until_a_write_succeeds(
    api: AsyncClient, stranger: AsyncClient, tenant: TestTenant, database: Database
) -> None:
    trace: dict[str, Any] = {"events": [{"event_type": "tool_call"}], "outcome": "success"}
    for statement in FULL_DISK:
        await database.server.run(statement.format(tenant=tenant.id), database.name)
    try:
        assert_problem(await api.post("/api/v1/traces", json=trace), 503, "unavailable")
        for _ in range(2):
            answer = await api.get("/health/ready")
            assert answer.status_code == 503
            assert answer.json()["database"] == {"status": "unavailable", "error": "DiskFull"}
        told = await stranger.get("/health/ready")
        assert (told.status_code, told.json()) == (503, {"status": "unavailable"})
        assert "hansei_database_disk_is_full 1.0" in (await api.get("/metrics")).text
    finally:
        await database.server.run("drop function full_disk cascade", database.name)
    answer = await api.get("/health/ready")
    assert (answer.status_code, answer.json()["database"]["status"]) == (200, "ok")
    assert not DISK_STATE.is_full
    assert (await api.post("/api/v1/traces", json=trace)).status_code == 201
