"""A full queue refuses new work with 429 and Retry-After, and stores nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from httpx2 import AsyncClient
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.run_queue import admission
from memory_api.run_queue.admission import (
    COUNT_CACHE_SECONDS,
    RESERVED_RUNS,
    RETRY_AFTER_SECONDS,
    AdmissionControl,
    QueueFull,
)
from memory_api.run_queue.postgres import PostgresRunQueue
from memory_api.runtime import Runtime
from tests.support.api_calls import count, ndjson, send_lines, trace
from tests.support.problems import assert_problem

RESPOND_ASYNC = {"Prefer": "respond-async"}


class Counted:
    """Stands for the count of the database: `waiting` tickets wait."""

    def __init__(self, waiting: int) -> None:
        self.waiting, self.asked = waiting, 0

    async def fetch_value(self, _session: object, _statement: object, parameters) -> int:
        self.asked += 1
        return min(self.waiting, parameters["limit"])


async def test_runs_admitted_since_last_count_are_added(monkeypatch) -> None:
    now = 0.0
    bounds = AdmissionControl(10, 100, clock=lambda: now)
    queue, tenant = Counted(7), uuid4()
    monkeypatch.setattr(admission, "fetch_value", queue.fetch_value)
    session = AsyncSession()
    await bounds.admit(session, tenant, 2)
    assert await bounds.get_remaining_capacity(session, tenant) == 1
    with pytest.raises(QueueFull, match="at most 10 queued runs"):
        await bounds.admit(session, tenant, 2)
    await bounds.admit(session, tenant, 1)
    assert queue.asked == 2  # once for the tenant, once for all
    now = COUNT_CACHE_SECONDS
    queue.waiting = 0
    assert await bounds.get_remaining_capacity(session, tenant) == 10


async def test_total_queue_has_limit(monkeypatch) -> None:
    monkeypatch.setattr(admission, "fetch_value", Counted(3 * RESERVED_RUNS).fetch_value)
    bounds = AdmissionControl(50_000, 3 * RESERVED_RUNS)
    with pytest.raises(QueueFull, match="too many runs are queued"):
        await bounds.admit(AsyncSession(), uuid4(), 1)


async def test_full_queue_admits_tenants_with_few_runs(api, runtime, monkeypatch) -> None:
    """Five tenants with 50,000 runs each fill it. Others can still send."""
    monkeypatch.setattr(admission, "RESERVED_RUNS", 2)
    async with runtime.sessions.without_tenant() as session:
        await send_lines(api, ndjson([trace()] * 5), "")
        bounds, other = AdmissionControl(50, 5), uuid4()
        assert await bounds.get_remaining_capacity(session, other) == 2
        await bounds.admit(session, other, 2)
        with pytest.raises(QueueFull, match="more than 2 of this tenant"):
            await bounds.admit(session, other, 1)


@pytest.fixture
def bound(runtime: Runtime) -> Iterator[AdmissionControl]:
    """The queue of the API takes three runs of a tenant."""
    assert isinstance(runtime.queue, PostgresRunQueue)
    before = runtime.queue.admission
    runtime.queue.admission = AdmissionControl(3, 10**9)
    yield runtime.queue.admission
    runtime.queue.admission = before


@pytest.mark.usefixtures("bound")
async def test_refused_trace_stores_nothing(api: AsyncClient, tenant, runtime) -> None:
    for _ in range(3):
        assert (await api.post("/api/v1/traces", json=trace())).status_code == 201
    before = await count(runtime, tenant.id)
    refused = await api.post("/api/v1/traces", json=trace())
    assert_problem(refused, 429, "queue_full")
    assert refused.headers["retry-after"] == str(RETRY_AFTER_SECONDS)
    later = await api.post("/api/v1/reflections/generate", json=trace(), headers=RESPOND_ASYNC)
    assert_problem(later, 429, "queue_full")
    assert await count(runtime, tenant.id) == before
    assert (await api.post("/api/v1/traces?reflect=never", json=trace())).status_code == 201
    waiting = await api.post("/api/v1/reflections/generate", json=trace())
    assert_problem(waiting, 429, "queue_full")


@pytest.mark.usefixtures("bound")
async def test_other_tenant_is_admitted(api: AsyncClient, http, make_tenant) -> None:
    await send_lines(api, ndjson([trace()] * 4), "")
    other = await make_tenant()
    answer = await http.post("/api/v1/traces", json=trace(), headers=other.auth())
    assert answer.status_code == 201


@pytest.mark.usefixtures("bound")
async def test_lines_over_limit_are_refused_one_by_one(api, tenant, runtime) -> None:
    raw = ndjson([*(trace(external_id=f"n-{n}") for n in range(5)), trace(external_id="n-0")])
    answer = (await send_lines(api, raw, "")).json()
    assert (answer["stored_count"], answer["duplicate_count"], answer["rejected_count"]) == (
        3,
        1,
        2,
    )
    codes = [item.get("error", {}).get("code") for item in answer["items"]]
    assert codes == [None, None, None, "queue_full", "queue_full", None]
    assert answer["items"][3]["error"]["retry_after"] == RETRY_AFTER_SECONDS
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"], rows["runs"]) == (3, 6, 3)


async def test_queue_is_counted_up_to_limit_only(api, runtime, monkeypatch) -> None:
    """The statement stops at the bound, and reads an index alone."""
    async with runtime.sessions.without_tenant() as session:
        monkeypatch.setattr(admission, "RESERVED_RUNS", 0)
        bounds = AdmissionControl(2, 2)
        await send_lines(api, ndjson([trace()] * 5), "")
        who = (await api.get("/api/v1/runs")).json()["items"]
        assert len(who) == 5
        assert (
            await bounds.get_remaining_capacity(session, uuid4()) == 0
        )  # all tenants: two or more wait
