"""Budgets: checked and reserved before a call, settled once after it; and what was spent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from memory_api.bootstrap import build_model_chain
from memory_api.budgets.accounting import ModelAccounting
from memory_api.budgets.reservations import period_end, period_start
from memory_api.budgets.tables import BudgetReservationRow, BudgetRow, LLMCallRow
from memory_api.core.ids import new_id
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.errors import LLMOverBudget, LLMServerError, LLMUnpriced
from memory_api.llm.port import LLM, LLMRequest, Message
from memory_api.llm.registry import open_llm
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.budget_books import Books, limit, request
from tests.support.stub_provider import StubProvider, answer, server_error
from tests.support.tickets import waiting_tickets


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture
def open_model(runtime: Runtime, stub: StubProvider) -> Any:
    """The whole chain of wrappers over a model whose price is known, on the stub."""

    def make(model: str = "gpt-4o-mini", provider: str = "openai") -> LLM:
        bare: Any = open_llm("openai", model=model, api_key="k", base_url=stub.openai_url)
        bare._provider = provider  # priced as the provider's own
        return build_model_chain(
            [bare],
            runtime.sessions,
            ModelAccounting(runtime.sessions),
            CircuitBreakers(),
            attempts=1,
            max_concurrent_calls=64,
        )

    return make


@pytest.fixture
async def llm(open_model: Any) -> AsyncIterator[LLM]:
    model = open_model()
    yield model
    await model.aclose()


async def reservations(runtime: Runtime, tenant: TestTenant) -> list[BudgetReservationRow]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.scalars(
            select(BudgetReservationRow)
            .where(BudgetReservationRow.tenant_id == tenant.id)
            .order_by(BudgetReservationRow.created_at)
        )
        return list(rows)


async def calls(runtime: Runtime, tenant: TestTenant) -> int:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return len(
            (
                await session.scalars(select(LLMCallRow).where(LLMCallRow.tenant_id == tenant.id))
            ).all()
        )


async def test_call_reserves_maximum_and_settles_actual_cost(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "1")
    seen: list[BudgetReservationRow] = []

    def look(_call: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(reservations(runtime, tenant), loop)
        seen.extend(future.result(10))
        return answer("ok", input_tokens=1000, output_tokens=10)

    loop = asyncio.get_running_loop()
    stub.behave = lambda call: look(call)
    asking = asyncio.create_task(llm.complete(request(tenant, max_tokens=500)))
    await asking
    (before,), (after,) = seen, await reservations(runtime, tenant)
    assert before.settled_at is None
    assert after.settled_at is not None
    assert before.amount_usd is not None
    assert after.amount_usd is not None
    assert 0 < after.amount_usd < before.amount_usd
    assert after.amount_usd == Decimal("0.00000015") * 1000 + Decimal("0.0000006") * 10


async def test_spent_budget_blocks_call_and_reports_amounts(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "0.0005")
    stub.behave = lambda _call: answer("ok", input_tokens=1000, output_tokens=500)
    await llm.complete(request(tenant, max_tokens=500))
    with pytest.raises(LLMOverBudget) as raised:
        await llm.complete(request(tenant, max_tokens=500))
    error = raised.value
    assert (error.status, error.code, len(stub.calls)) == (402, "budget_spent", 1)
    assert "does not cover this call: $0.00005 of $0.0005 left" in str(error)
    assert error.extra["limit_usd"] == 0.0005
    assert error.extra["spent_usd"] == pytest.approx(0.00045)
    assert error.extra["left_usd"] == pytest.approx(0.00005)
    assert error.extra["asked_usd"] > 0.00005
    assert await calls(runtime, tenant) == 1, "what was not asked is not in the ledger"


async def test_concurrent_calls_do_not_exceed_budget(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "0.002")
    stub.behave = lambda _call: answer("ok", input_tokens=1000, output_tokens=500)
    done = await asyncio.gather(
        *(llm.complete(request(tenant, max_tokens=500)) for _ in range(12)), return_exceptions=True
    )
    refused = [one for one in done if isinstance(one, LLMOverBudget)]
    answered = [one for one in done if not isinstance(one, BaseException)]
    assert len(refused) + len(answered) == 12
    assert 1 <= len(answered) <= 4
    assert len(stub.calls) == len(answered)


async def test_failed_call_costs_nothing_and_is_settled(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "1")
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
        await llm.complete(request(tenant))
    (row,) = await reservations(runtime, tenant)
    assert (row.amount_usd, row.settled_at is not None) == (0, True)


async def test_unpriced_model_is_refused_unless_allowed(
    runtime: Runtime, tenant: TestTenant, open_model: Any, stub: StubProvider
) -> None:
    unknown = open_model("nobody-knows-it", "compatible")
    await unknown.complete(request(tenant))  # no budget, no question
    await limit(runtime, tenant, "1")
    with pytest.raises(LLMUnpriced) as raised:
        await unknown.complete(request(tenant))
    assert (raised.value.status, raised.value.code) == (402, "price_unknown")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(BudgetRow)
            .where(BudgetRow.tenant_id == tenant.id)
            .values(allow_unknown_price=True)
        )
    await unknown.complete(request(tenant))
    assert len(stub.calls) == 2
    await unknown.aclose()


async def test_reservation_of_dead_process_is_settled_in_full(
    runtime: Runtime, tenant: TestTenant
) -> None:
    """The provider may have charged the call, so its maximum stays."""
    await limit(runtime, tenant, "1.5")
    books = Books(runtime, tenant)
    reserved = await books.reserve("1")
    with pytest.raises(LLMOverBudget):
        await books.reserve("1")
    assert await books.settle_expired() == 0
    async with runtime.sessions.for_tenant(tenant.id) as session:
        row = await session.get_one(BudgetReservationRow, (tenant.id, reserved))
        row.expires_at = datetime.now(UTC) - timedelta(seconds=1)
    assert await books.settle_expired() == 1
    assert await books.settle_expired() == 0
    assert await books.spending() == (1, 0)
    await books.settle(reserved, "0.25")  # its process was only late
    assert await books.spending() == (0.25, 0)
    await books.settle(reserved, "9")
    assert await books.spending() == (0.25, 0), "settled once"


async def test_yesterdays_cost_counts_for_month_only(runtime: Runtime, tenant: TestTenant) -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    for days, usd in ((22, "50"), (1, "3")):
        past = Books(runtime, tenant, noon - timedelta(days=days))
        await past.settle(await past.reserve("2"), usd)
    today = Books(runtime, tenant, noon)
    await limit(runtime, tenant, "2")
    await limit(runtime, tenant, "5", period="month")
    await today.settle(await today.reserve("2"), "2")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(BudgetRow)
            .where(BudgetRow.tenant_id == tenant.id, BudgetRow.period == "day")
            .values(limit_usd=100)
        )
    with pytest.raises(LLMOverBudget) as raised:
        await today.reserve("2")
    assert raised.value.extra["period"] == "month"
    assert raised.value.extra["resets_at"] == "2026-12-01T00:00:00+00:00"
    assert raised.value.retry_after == timedelta(days=9, hours=12).total_seconds()


async def test_budgets_are_separate_per_tenant(
    runtime: Runtime, tenant: TestTenant, make_tenant: Any
) -> None:
    await limit(runtime, tenant, "0")
    with pytest.raises(LLMOverBudget):
        await Books(runtime, tenant).reserve("1")
    await Books(runtime, await make_tenant()).reserve("1")


async def test_call_without_tenant_is_refused(runtime: Runtime, llm: LLM) -> None:
    with pytest.raises(ValueError, match="tenant"):
        await llm.complete(LLMRequest((Message("user", "hello"),)))


@given(st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)))
def test_periods_have_no_gap(now: datetime) -> None:
    for period in ("day", "month"):
        if now.year >= 9999:
            return
        start, end = period_start(period, now), period_end(period, now)
        assert start <= now < end
        assert period_start(period, end) == end
        assert period_start(period, end - timedelta(microseconds=1)) == start


BUDGETS = {
    "items": [
        {"period": "day", "limit_usd": 5, "allow_unknown_price": False},
        {"period": "month", "limit_usd": 80.5, "allow_unknown_price": True},
    ]
}


async def test_budgets_over_http(api: Any, runtime: Runtime, tenant: TestTenant) -> None:
    assert (await api.get("/api/v1/budgets")).json()["items"] == []
    answered = (await api.put("/api/v1/budgets", json=BUDGETS)).json()["items"]
    assert [one["limit_usd"] for one in answered] == [5, 80.5]
    books = Books(runtime, tenant)
    await books.settle(await books.reserve("0.25"), "0.125")
    await books.reserve("0.25")
    day, month = (await api.get("/api/v1/budgets")).json()["items"]
    assert (day["spent_usd"], day["reserved_usd"], day["left_usd"]) == (0.125, 0.25, 4.625)
    assert (month["period"], month["allow_unknown_price"]) == ("month", True)
    assert (await api.put("/api/v1/budgets", json={"items": []})).json()["items"] == []
    assert (await api.get("/api/v1/budgets")).json()["items"] == []


@pytest.mark.parametrize(
    "items",
    [
        [{"period": "week", "limit_usd": 1}],
        [{"period": "day", "limit_usd": -1}],
        [{"period": "day", "limit_usd": "NaN"}],
        [{"period": "day"}],
        [{"period": "day", "limit_tokens": -1}],
        [{"period": "day", "limit_usd": 1, "when_spent": "shrug"}],
        [{"period": "day", "limit_usd": 1}, {"period": "day", "limit_usd": 2}],
        [{"period": "day", "limit_usd": 1, "project_id": "p"}] * 2,
    ],
)
async def test_invalid_budget_is_refused(api: Any, items: Any) -> None:
    assert (await api.put("/api/v1/budgets", json={"items": items})).status_code == 422


async def test_usage_sums_the_ledger(
    api: Any, runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    stub.behave = lambda _call: answer("ok", input_tokens=2000, output_tokens=100)
    for _ in range(2):
        await llm.complete(request(tenant))
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
        await llm.complete(request(tenant))
    (row,) = (await api.get("/api/v1/usage")).json()["items"]
    assert (row["call_count"], row["failed_count"], row["unpriced_count"]) == (3, 1, 0)
    assert (row["input_tokens"], row["output_tokens"]) == (4000, 200)
    assert row["cost_usd"] == pytest.approx(2 * (2000 * 0.00000015 + 100 * 0.0000006))
    assert row["day"] == datetime.now(UTC).date().isoformat()
    (row,) = (await api.get("/api/v1/usage", params={"group_by": "model,purpose"})).json()["items"]
    assert (row["model"], row["purpose"], row["day"]) == ("gpt-4o-mini", "test", None)
    late = {"since": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    assert (await api.get("/api/v1/usage", params=late)).json()["items"] == []
    assert (await api.get("/api/v1/usage", params={"group_by": "color"})).status_code == 422


async def test_run_is_postponed_for_budget_without_losing_attempt(
    api: Any, runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "0")
    trace = {
        "outcome": "failure",
        "events": [{"event_type": "error_event", "content": "disk full"}],
    }
    (await api.post("/api/v1/traces", json=trace)).raise_for_status()
    thinking = replace(runtime, llm=llm, process_name="thinking")
    waits: list[timedelta | None] = []
    for _ in range(5):
        for ticket in await waiting_tickets(runtime, tenant.id):
            waits.append(await process_ticket(thinking, ticket))
    (wait,) = [one for one in waits if one is not None]
    assert timedelta(minutes=1) < wait < timedelta(minutes=20)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = await session.scalar(
            select(RunRow).where(RunRow.tenant_id == tenant.id, RunRow.state == "queued")
        )
    assert run is not None
    assert (run.attempt_count, run.error["code"]) == (0, "budget_spent")
    assert stub.calls == []


async def test_default_period_is_that_of_analytics(
    api: Any, runtime: Runtime, tenant: TestTenant
) -> None:
    first = datetime.combine(datetime.now(UTC).date() - timedelta(days=30), time(), UTC)
    call = {"provider": "openai", "model": "m", "purpose": "reflect", "status": "ok"}
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for seconds in (0, 1):
            created_at = first - timedelta(seconds=seconds)
            row = LLMCallRow(tenant_id=tenant.id, id=new_id(), created_at=created_at, **call)
            row.project_id, row.latency_ms = "default", 1
            session.add(row)
    (used,) = (await api.get("/api/v1/usage")).json()["items"]
    (cost,) = (await api.get("/api/v1/analytics/costs")).json()["rows"]
    assert (used["day"], used["call_count"]) == (cost["day"], cost["call_count"])
    assert used["call_count"] == 1
