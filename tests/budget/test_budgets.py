"""Budgets: checked and reserved before a call, settled once after it; and what was spent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from apps.memory_api.budget.guard import DatabaseBudget, end_of, start_of
from apps.memory_api.budget.tables import BudgetRow, LLMCall, Reservation
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.budget import Estimate
from apps.memory_api.llm.errors import LLMOverBudget, LLMServerError, LLMUnpriced
from apps.memory_api.llm.pause import Gate
from apps.memory_api.llm.port import LLM, LLMRequest, Message, Usage
from apps.memory_api.llm.registry import open_llm
from apps.memory_api.runtime import Runtime, compose_model
from apps.memory_api.worker import work
from tests.conftest import TestTenant
from tests.queue import waiting_tickets
from tests.stub_provider import StubProvider, answer, server_error

ASKED = Usage(input_tokens=1000, output_tokens=500)


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture
def open_model(runtime: Runtime, stub: StubProvider) -> Any:
    """The whole chain of wrappers over a model whose price is known, on the stub."""

    def make(model: str = "gpt-4o-mini", provider: str = "openai") -> LLM:
        bare: Any = open_llm("openai", model=model, api_key="k", base_url=stub.openai_url)
        bare._dialect = provider  # priced as the provider's own
        return compose_model([bare], runtime.sessions, Gate(), attempts=1, slots=32)

    return make


@pytest.fixture
async def llm(open_model: Any) -> AsyncIterator[LLM]:
    model = open_model()
    yield model
    await model.aclose()


def request(tenant: TestTenant, **more: Any) -> LLMRequest:
    return LLMRequest((Message("user", "x" * 4000),), tenant_id=tenant.id, purpose="test", **more)


async def limit(runtime: Runtime, tenant: TestTenant, usd: str, **more: Any) -> None:
    async with runtime.sessions.tenant(tenant.id) as session:
        row = {"period": "day", "usd": Decimal(usd), **more}
        session.add(BudgetRow(tenant_id=tenant.id, **row))


async def reservations(runtime: Runtime, tenant: TestTenant) -> list[Reservation]:
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = await session.scalars(
            select(Reservation)
            .where(Reservation.tenant_id == tenant.id)
            .order_by(Reservation.created_at)
        )
        return list(rows)


async def calls(runtime: Runtime, tenant: TestTenant) -> int:
    async with runtime.sessions.tenant(tenant.id) as session:
        return len(
            (await session.scalars(select(LLMCall).where(LLMCall.tenant_id == tenant.id))).all()
        )


async def test_a_call_is_reserved_at_the_most_and_settled_at_what_it_cost(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "1")
    seen: list[Reservation] = []

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
    assert before.usd is not None
    assert after.usd is not None
    assert 0 < after.usd < before.usd
    assert after.usd == Decimal("0.00000015") * 1000 + Decimal("0.0000006") * 10


async def test_when_it_is_spent_nothing_is_called_and_the_figures_are_told(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "0.0005")
    stub.behave = lambda _call: answer("ok", input_tokens=1000, output_tokens=500)
    await llm.complete(request(tenant, max_tokens=500))
    with pytest.raises(LLMOverBudget) as raised:
        await llm.complete(request(tenant, max_tokens=500))
    error = raised.value
    assert (error.status, error.code, len(stub.calls)) == (402, "budget_spent", 1)
    assert error.extra["usd"] == 0.0005
    assert error.extra["spent_usd"] == pytest.approx(0.00045)
    assert error.extra["left_usd"] == pytest.approx(0.00005)
    assert error.extra["asked_usd"] > 0.00005
    assert await calls(runtime, tenant) == 1, "what was not asked is not in the ledger"


async def test_many_at_once_do_not_spend_more_than_there_is(
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


async def test_a_provider_that_fails_costs_nothing_and_settles(
    runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "1")
    stub.queue(server_error())
    with pytest.raises(LLMServerError):
        await llm.complete(request(tenant))
    (row,) = await reservations(runtime, tenant)
    assert (row.usd, row.settled_at is not None) == (0, True)


async def test_a_model_without_a_price_is_refused_unless_allowed(
    runtime: Runtime, tenant: TestTenant, open_model: Any, stub: StubProvider
) -> None:
    unknown = open_model("nobody-knows-it", "compatible")
    await unknown.complete(request(tenant))  # no budget, no question
    await limit(runtime, tenant, "1")
    with pytest.raises(LLMUnpriced) as raised:
        await unknown.complete(request(tenant))
    assert (raised.value.status, raised.value.code) == (402, "price_unknown")
    async with runtime.sessions.tenant(tenant.id) as session:
        await session.execute(
            update(BudgetRow)
            .where(BudgetRow.tenant_id == tenant.id)
            .values(allow_unknown_price=True)
        )
    await unknown.complete(request(tenant))
    assert len(stub.calls) == 2
    await unknown.aclose()


async def test_a_reservation_whose_process_died_expires(
    runtime: Runtime, tenant: TestTenant
) -> None:
    await limit(runtime, tenant, "1.5")
    budget = DatabaseBudget(runtime.sessions)
    estimate = Estimate("openai", "m", "test", tenant.id, None, ASKED, Decimal(1))
    reserved = await budget.reserve(estimate)
    with pytest.raises(LLMOverBudget):
        await budget.reserve(estimate)
    async with runtime.sessions.tenant(tenant.id) as session:
        row = await session.get_one(Reservation, (tenant.id, reserved))
        row.expires_at = datetime.now(UTC) - timedelta(seconds=1)
    again = await budget.reserve(estimate)
    await budget.settle(again, ASKED, Decimal("0.5"))
    await budget.reserve(estimate)


async def test_yesterday_counts_for_the_month_and_not_for_the_day(
    runtime: Runtime, tenant: TestTenant
) -> None:
    noon = datetime(2026, 11, 21, 12, tzinfo=UTC)
    estimate = Estimate("openai", "m", "test", tenant.id, None, ASKED, Decimal(2))
    for days, usd in ((22, 50), (1, 3)):
        past = DatabaseBudget(runtime.sessions, lambda days=days: noon - timedelta(days=days))
        await past.settle(await past.reserve(estimate), ASKED, Decimal(usd))
    today = DatabaseBudget(runtime.sessions, lambda: noon)
    await limit(runtime, tenant, "2")
    await limit(runtime, tenant, "5", period="month")
    await today.settle(await today.reserve(estimate), ASKED, Decimal(2))
    async with runtime.sessions.tenant(tenant.id) as session:
        await session.execute(
            update(BudgetRow)
            .where(BudgetRow.tenant_id == tenant.id, BudgetRow.period == "day")
            .values(usd=100)
        )
    with pytest.raises(LLMOverBudget) as raised:
        await today.reserve(estimate)
    assert raised.value.extra["period"] == "month"
    assert raised.value.extra["resets_at"] == "2026-12-01T00:00:00+00:00"
    assert raised.value.retry_after == timedelta(days=9, hours=12).total_seconds()


async def test_one_tenants_budget_is_not_anothers(
    runtime: Runtime, tenant: TestTenant, make_tenant: Any
) -> None:
    await limit(runtime, tenant, "0")
    budget, other = DatabaseBudget(runtime.sessions), await make_tenant()
    with pytest.raises(LLMOverBudget):
        await budget.reserve(Estimate("openai", "m", "t", tenant.id, None, ASKED, Decimal(1)))
    await budget.reserve(Estimate("openai", "m", "t", other.id, None, ASKED, Decimal(1)))
    with pytest.raises(ValueError, match="tenant"):
        await budget.reserve(Estimate("openai", "m", "t", None, None, ASKED, Decimal(1)))


@given(st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)))
def test_periods_follow_each_other_without_a_gap(now: datetime) -> None:
    for period in ("day", "month"):
        if now.year >= 9999:
            return
        start, end = start_of(period, now), end_of(period, now)
        assert start <= now < end
        assert start_of(period, end) == end
        assert start_of(period, end - timedelta(microseconds=1)) == start


BUDGETS = {
    "items": [
        {"period": "day", "usd": 5, "allow_unknown_price": False},
        {"period": "month", "usd": 80.5, "allow_unknown_price": True},
    ]
}


async def test_budgets_over_http(api: Any, runtime: Runtime, tenant: TestTenant) -> None:
    assert (await api.get("/api/v1/budgets")).json()["items"] == []
    answered = (await api.put("/api/v1/budgets", json=BUDGETS)).json()["items"]
    assert [one["usd"] for one in answered] == [5, 80.5]
    budget = DatabaseBudget(runtime.sessions)
    estimate = Estimate("openai", "m", "t", tenant.id, None, ASKED, Decimal("0.25"))
    await budget.settle(await budget.reserve(estimate), ASKED, Decimal("0.125"))
    await budget.reserve(estimate)
    day, month = (await api.get("/api/v1/budgets")).json()["items"]
    assert (day["spent_usd"], day["reserved_usd"], day["left_usd"]) == (0.125, 0.25, 4.625)
    assert (month["period"], month["allow_unknown_price"]) == ("month", True)
    assert (await api.put("/api/v1/budgets", json={"items": []})).json()["items"] == []
    assert (await api.get("/api/v1/budgets")).json()["items"] == []


@pytest.mark.parametrize(
    "items",
    [
        [{"period": "week", "usd": 1}],
        [{"period": "day", "usd": -1}],
        [{"period": "day", "usd": "NaN"}],
        [{"period": "day"}],
        [{"period": "day", "usd": 1}, {"period": "day", "usd": 2}],
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused(api: Any, items: Any) -> None:
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
    assert (row["calls"], row["failed"], row["unpriced"]) == (3, 1, 0)
    assert (row["input_tokens"], row["output_tokens"]) == (4000, 200)
    assert row["usd"] == pytest.approx(2 * (2000 * 0.00000015 + 100 * 0.0000006))
    assert row["day"] == datetime.now(UTC).date().isoformat()
    (row,) = (await api.get("/api/v1/usage", params={"by": "model,purpose"})).json()["items"]
    assert (row["model"], row["purpose"], row["day"]) == ("gpt-4o-mini", "test", None)
    late = {"since": (datetime.now(UTC) + timedelta(hours=1)).isoformat()}
    assert (await api.get("/api/v1/usage", params=late)).json()["items"] == []
    assert (await api.get("/api/v1/usage", params={"by": "colour"})).status_code == 422


async def test_a_run_waits_for_the_budget_and_loses_no_attempt(
    api: Any, runtime: Runtime, tenant: TestTenant, llm: LLM, stub: StubProvider
) -> None:
    await limit(runtime, tenant, "0")
    trace = {
        "outcome": "failure",
        "events": [{"event_type": "error_event", "content": "disk full"}],
    }
    (await api.post("/api/v1/traces", json=trace)).raise_for_status()
    thinking = Runtime(
        runtime.settings, runtime.sessions, runtime.embedder, runtime.queue, llm, name="thinking"
    )
    waits: list[timedelta | None] = []
    for _ in range(5):
        for ticket in await waiting_tickets(runtime, tenant.id):
            waits.append(await work(thinking, ticket))
    (wait,) = [one for one in waits if one is not None]
    assert timedelta(minutes=1) < wait < timedelta(minutes=20)
    async with runtime.sessions.tenant(tenant.id) as session:
        run = await session.scalar(
            select(Run).where(Run.tenant_id == tenant.id, Run.state == "queued")
        )
    assert run is not None
    assert (run.attempts, run.error["code"]) == (0, "budget_spent")
    assert stub.calls == []
