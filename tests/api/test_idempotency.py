"""Idempotency-Key: the first answer is given again, and the work is done once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api.api import idempotency
from tests.support.api_calls import JSON, NDJSON, count, ndjson, new_key, new_memory, trace
from tests.support.problems import assert_names, assert_problem


def named(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def test_first_response_is_replayed(api, tenant, runtime) -> None:
    first = await api.post("/api/v1/traces", json=trace(), headers=named("a"))
    before = await count(runtime, tenant.id)
    second = await api.post("/api/v1/traces", json=trace(), headers=named("a"))
    assert (second.status_code, second.json()) == (first.status_code, first.json())
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert await count(runtime, tenant.id) == before


async def test_other_body_with_same_key_is_422(api: AsyncClient) -> None:
    await api.post("/api/v1/traces", json=trace(), headers=named("a"))
    answer = await api.post("/api/v1/traces", json=trace(outcome="error"), headers=named("a"))
    body = assert_names(answer, "Idempotency-Key")
    assert body["code"] == "idempotency_key_reused"


async def test_key_is_scoped_to_route_query_and_api_key(api, tenant, runtime) -> None:
    other = await new_key(api, "write")
    body = trace()
    answers = [
        await api.post("/api/v1/traces", json=body, headers=named("a")),
        await api.post("/api/v1/traces?reflect=never", json=body, headers=named("a")),
        await api.post("/api/v1/traces", json=body, headers=named("a") | other),
        await api.post("/api/v1/reflections/generate", json=body, headers=named("a")),
    ]
    assert [a.status_code for a in answers] == [201, 201, 201, 200]
    assert (await count(runtime, tenant.id))["traces"] == 4


async def test_other_tenant_gets_no_replay(api, http, make_tenant) -> None:
    other = await make_tenant()
    first = await api.post("/api/v1/traces", json=trace(), headers=named("a"))
    second = await http.post("/api/v1/traces", json=trace(), headers=named("a") | other.auth())
    assert second.status_code == 201
    assert second.json()["trace_id"] != first.json()["trace_id"]


async def test_ten_concurrent_requests_have_one_effect(api, tenant, runtime) -> None:
    body = {"content": "once"}
    answers = await asyncio.gather(
        *(api.post("/api/v1/memories", json=body, headers=named("r")) for _ in range(10))
    )
    done = [a for a in answers if a.status_code == 201]
    busy = [a for a in answers if a.status_code == 409]
    assert len(done) >= 1
    assert len(done) + len(busy) == 10
    assert len({a.json()["id"] for a in done}) == 1
    for answer in busy:
        assert_problem(answer, 409, "in_progress")
        assert int(answer.headers["retry-after"]) >= 1
    assert (await count(runtime, tenant.id))["memories"] == 1


async def test_failed_request_releases_key(api, tenant, runtime) -> None:
    bad = await api.post("/api/v1/traces", json={"events": []}, headers=named("f"))
    assert_problem(bad, 422)
    missing = await api.patch(
        "/api/v1/memories/00000000-0000-0000-0000-000000000001", json={}, headers=named("f")
    )
    assert_problem(missing, 404)
    assert (await count(runtime, tenant.id))["idempotency_keys"] == 0
    good = await api.post("/api/v1/traces", json=trace(), headers=named("f"))
    assert good.status_code == 201


async def test_request_in_progress_is_409(api, tenant, runtime) -> None:
    """A reservation whose holder is at work, and one whose holder died."""
    await api.post("/api/v1/memories", json={"content": "x"}, headers=named("w"))
    change = text("update idempotency_keys set response_status = null, lease_until = :until")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(change, {"until": datetime.now(UTC) + timedelta(seconds=30)})
    answer = await api.post("/api/v1/memories", json={"content": "x"}, headers=named("w"))
    assert_problem(answer, 409, "in_progress")
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(change, {"until": datetime.now(UTC) - timedelta(seconds=1)})
    answer = await api.post("/api/v1/memories", json={"content": "x"}, headers=named("w"))
    assert answer.status_code == 201


async def test_key_is_reserved_until_request_ends(api, tenant, runtime, monkeypatch) -> None:
    """The lease is far shorter than the work: without a heartbeat the second would do it again."""
    monkeypatch.setattr(idempotency, "LEASE", timedelta(seconds=0.3))
    raw = ndjson([trace()] * 600)
    send = api.post("/api/v1/traces", content=raw, headers=NDJSON | named("long"))
    first = asyncio.create_task(send)
    for _ in range(4):
        await asyncio.sleep(0.4)
        answer = await api.post("/api/v1/traces", content=raw, headers=NDJSON | named("long"))
        assert answer.status_code in (200, 409)
    assert (await first).json()["stored_count"] == 600
    assert (await count(runtime, tenant.id))["traces"] == 600


SLACK = timedelta(seconds=1)
"""Citus starts the transaction of a node later than that of the coordinator."""


async def test_lease_follows_the_clock_of_the_database(tenant, runtime) -> None:
    """Clocks of API processes may differ."""
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await idempotency.reserve_key(session, "POST /x", "k", b"body")
        row = await session.scalar(text("select lease_until - now() from idempotency_keys"))
        assert abs(row - idempotency.LEASE) < SLACK
        await session.execute(text("update idempotency_keys set lease_until = now()"))
        await idempotency.set_lease(session, "POST /x", "k")
        row = await session.scalar(text("select lease_until - now() from idempotency_keys"))
        assert abs(row - idempotency.LEASE) < SLACK


async def test_response_is_replayed_for_a_day(api, tenant, runtime) -> None:
    first = await api.post("/api/v1/memories", json={"content": "x"}, headers=named("d"))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            text("update idempotency_keys set created_at = now() - interval '25 hours'")
        )
    second = await api.post("/api/v1/memories", json={"content": "y"}, headers=named("d"))
    assert second.status_code == 201
    assert second.json()["id"] != first.json()["id"]


async def test_response_without_body_is_replayed(api: AsyncClient) -> None:
    memory_id = await new_memory(api, "to be forgotten")
    for replayed in (None, "true", "true"):
        answer = await api.delete(f"/api/v1/memories/{memory_id}", headers=named("x"))
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers.get("idempotency-replayed") == replayed


async def test_secret_in_response_is_not_stored(api, tenant, runtime) -> None:
    first = await api.post("/api/v1/keys", json={"name": "n"}, headers=named("k"))
    second = await api.post("/api/v1/keys", json={"name": "n"}, headers=named("k"))
    assert second.json() == first.json() | {"key": "[secret:hansei_key]"}
    async with runtime.sessions.for_tenant(tenant.id) as session:
        stored = await session.scalar(text("select response_body::text from idempotency_keys"))
    assert first.json()["key"] not in stored
    assert (await count(runtime, tenant.id))["api_keys"] == 5


@pytest.mark.parametrize("key", ["", "x" * 256, "näme", "a\tb"])
async def test_invalid_name_is_refused(api, tenant, runtime, key: str) -> None:
    headers = JSON | {"Idempotency-Key": key.encode("latin-1")}
    answer = await api.post("/api/v1/memories", json={"content": "x"}, headers=headers)
    assert_names(answer, "Idempotency-Key")
    assert (await count(runtime, tenant.id))["memories"] == 0


async def test_any_printable_key_and_path_are_accepted(api: AsyncClient) -> None:
    for key in ("x" * 255, "a b", "'\"; --", "{0} %s"):
        answer = await api.post("/api/v1/memories", json={"content": "x"}, headers=named(key))
        assert answer.status_code == 201
    for path in ("%00", "x" * 20_000, "%ff"):
        answer = await api.patch(f"/api/v1/memories/{path}", json={}, headers=named("long"))
        assert_names(answer, "memory_id")


async def test_reading_needs_no_key(api, tenant, runtime) -> None:
    assert (await api.get("/api/v1/traces", headers=named("g"))).status_code == 200
    assert (await count(runtime, tenant.id))["idempotency_keys"] == 0
