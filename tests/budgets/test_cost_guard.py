"""The cost guard: 50 calls at once, budgets by project and purpose, alerts, and what a spent budget
does to requests and runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from memory_api.bootstrap import build_model_chain
from memory_api.budgets.accounting import AccountedLLM, ModelAccounting, estimate_usage
from memory_api.budgets.tables import BudgetReservationRow
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.errors import LLMOverBudget, LLMUnpriced
from memory_api.llm.registry import open_llm
from memory_api.llm.wrappers import price_usd
from memory_api.runs.lifecycle import MAX_POSTPONED_AGE
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.support.budget_books import Books, limit, request
from tests.support.model_service import GOOD, Serve, Service, trace
from tests.support.stub_provider import StubProvider, answer
from tests.support.tickets import count_tickets


async def test_fifty_parallel_calls_never_overspend_by_more_than_one_estimate(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider
) -> None:
    """Each call costs as much as it may: the answer is as long as allowed."""
    model: Any = open_llm("openai", model="gpt-4o-mini", api_key="k", base_url=stub.openai_url)
    model._provider = "openai"  # priced as the provider's own
    asked = request(tenant, max_tokens=500)
    estimate = estimate_usage(asked)
    one = price_usd(estimate, provider="openai", model="gpt-4o-mini", endpoint=stub.openai_url)
    assert one is not None
    await limit(runtime, tenant, str(one * 10 + one / 2))
    chain = build_model_chain(
        [model],
        runtime.sessions,
        ModelAccounting(runtime.sessions),
        CircuitBreakers(),
        attempts=1,
        max_concurrent_calls=50,
    )
    stub.behave = lambda _call: answer(
        "ok", input_tokens=estimate.input_tokens, output_tokens=estimate.output_tokens
    )
    done = await asyncio.gather(*(chain.complete(asked) for _ in range(50)), return_exceptions=True)
    refused = [result for result in done if isinstance(result, LLMOverBudget)]
    assert len(refused) == 40
    assert len(stub.calls) == 10
    spent, reserved = await Books(runtime, tenant).spending()
    assert spent == pytest.approx(float(one * 10))
    assert reserved == 0
    await model.aclose()


async def test_totals_equal_the_reservations(runtime: Runtime, tenant: TestTenant) -> None:
    books = Books(runtime, tenant)

    async def call(number: int) -> None:
        purpose, project = ("reflect", "curate")[number % 2], f"p{number % 3}"
        made = await books.reserve("0.5", purpose=purpose, project_id=project)
        if number % 5:
            await books.settle(made, "0.125")

    await asyncio.gather(*(call(number) for number in range(30)))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = list(await session.scalars(select(BudgetReservationRow)))
    settled = [row for row in rows if row.settled_at]
    for project, purpose in (("", ""), ("p1", ""), ("", "curate"), ("p2", "reflect")):
        total = await books.total(project, purpose)
        mine = [
            row for row in rows if project in ("", row.project_id) and purpose in ("", row.purpose)
        ]
        assert total.spent_usd == sum(r.amount_usd or 0 for r in mine if r in settled)
        assert total.reserved_usd == sum(r.amount_usd or 0 for r in mine if r not in settled)
        assert total.reserved_tokens == sum(r.amount_tokens for r in mine if r not in settled)


@pytest.mark.parametrize(
    ("scope", "refused"),
    [
        ({}, ["reflect/a", "curate/a", "reflect/b"]),
        ({"project_id": "a"}, ["reflect/a", "curate/a"]),
        ({"purpose": "reflect"}, ["reflect/a", "reflect/b"]),
        ({"project_id": "a", "purpose": "reflect"}, ["reflect/a"]),
    ],
)
async def test_budget_limits_its_project_and_purpose_only(
    runtime: Runtime, tenant: TestTenant, scope: dict[str, str], refused: list[str]
) -> None:
    await limit(runtime, tenant, "1", **scope)
    books = Books(runtime, tenant)
    await books.settle(await books.reserve("1", purpose="reflect", project_id="a"), "1")
    for name in ("reflect/a", "curate/a", "reflect/b"):
        purpose, project = name.split("/")
        if name not in refused:
            await books.reserve("0.01", purpose=purpose, project_id=project)
            continue
        with pytest.raises(LLMOverBudget) as raised:
            await books.reserve("0.01", purpose=purpose, project_id=project)
        assert raised.value.extra["project_id"] == scope.get("project_id")
        assert raised.value.extra["purpose"] == scope.get("purpose")


async def test_budget_in_tokens(runtime: Runtime, tenant: TestTenant) -> None:
    await limit(runtime, tenant, None, limit_tokens=2000)
    books = Books(runtime, tenant)
    made = await books.reserve(None)  # its price is unknown, which a limit in tokens does not need
    with pytest.raises(LLMOverBudget) as raised:
        await books.reserve(None)
    assert raised.value.extra["left_tokens"] == 500
    assert raised.value.extra["asked_tokens"] == 1500
    assert raised.value.extra["left_usd"] is None
    await books.settle(made, None, tokens=300)
    await books.reserve(None)
    await limit(runtime, tenant, "1", purpose="test")
    with pytest.raises(LLMUnpriced):
        await books.reserve(None)


async def test_alerts_are_raised_once_for_each_threshold(
    runtime: Runtime, tenant: TestTenant
) -> None:
    await limit(runtime, tenant, "10")
    await limit(runtime, tenant, None, period="month", limit_tokens=2000)
    books = Books(runtime, tenant)
    raised: list[list[tuple[str, int]]] = []
    for usd in ("7.9", "0.1", "0.5", "1", "0.1"):
        made = await books.reserve(usd, usage=estimate_usage(request(tenant, max_tokens=1)))
        alerts = await books.settle(made, usd, tokens=10)
        raised.append([(alert.unit, alert.percent) for alert in alerts])
    assert raised == [[], [("usd", 80)], [], [("usd", 90), ("usd", 95)], []]


async def test_budgets_show_their_alerts(api: Any, runtime: Runtime, tenant: TestTenant) -> None:
    await limit(runtime, tenant, "1")
    books = Books(runtime, tenant)
    await books.settle(await books.reserve("0.9"), "0.9", tokens=1500)
    (budget,) = (await api.get("/api/v1/budgets")).json()["items"]
    assert [(a["percent"], a["unit"]) for a in budget["alerts"]] == [(80, "usd"), (90, "usd")]
    assert (budget["spent_tokens"], budget["left_tokens"]) == (1500, None)


async def test_call_logs_alert(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider, logs: list[dict[str, Any]]
) -> None:
    model: Any = open_llm("openai", model="gpt-4o-mini", api_key="k", base_url=stub.openai_url)
    model._provider = "openai"
    await limit(runtime, tenant, None, limit_tokens=2000)
    stub.behave = lambda _call: answer("ok", input_tokens=1500, output_tokens=350)
    await AccountedLLM(model, ModelAccounting(runtime.sessions)).complete(
        request(tenant, max_tokens=500)
    )
    events = [e for e in logs if e["event"] == "budget_threshold_reached"]
    assert [(e["unit"], e["percent"], e["spent"]) for e in events] == [
        ("tokens", 80, 1850.0),
        ("tokens", 90, 1850.0),
    ]
    await model.aclose()


@pytest.fixture
async def openai_service(serve: Serve) -> Service:
    return await serve("openai")


async def test_spent_budget_answers_402_and_the_run_waits_for_it(
    openai_service: Service, runtime: Runtime, tenant: TestTenant
) -> None:
    service = openai_service
    await limit(runtime, tenant, None, limit_tokens=10)
    answered = await service.generate()
    body = answered.json()
    assert (answered.status_code, body["code"]) == (402, "budget_spent")
    assert (body["limit_tokens"], body["left_tokens"], body["spent_tokens"]) == (10, 10, 0)
    assert body["asked_tokens"] > 10
    assert body["detail"] == (
        "The budget of the day does not cover this call: 10 of 10 tokens left, and the call may "
        f"need up to {body['asked_tokens']} tokens."
    )
    assert int(answered.headers["retry-after"]) > 0
    (run,) = await service.runs()
    assert (run.state, run.attempt_count, run.error["code"]) == ("queued", 0, "budget_spent")
    assert await count_tickets(runtime, tenant.id) == 1
    async with runtime.sessions.for_tenant(tenant.id) as session:
        old = await session.get_one(RunRow, (tenant.id, run.id))
        old.created_at = datetime.now(UTC) - MAX_POSTPONED_AGE - timedelta(days=20)
    await service.deliver_ticket(run.id)
    assert (await service.run(run.id)).state == "queued", "it waits for a month if need be"
    (await service.api.put("/api/v1/budgets", json={"items": []})).raise_for_status()
    await service.deliver_ticket(run.id)
    done = await service.run(run.id)
    assert (done.state, done.engine, done.error) == ("done", "llm", None)
    assert done.result["reflection_text"] == GOOD["reflection"]


async def test_budget_that_says_so_falls_back_to_rules(
    openai_service: Service, runtime: Runtime, tenant: TestTenant
) -> None:
    service = openai_service
    await limit(runtime, tenant, None, limit_tokens=10, when_spent="rules")
    body = await service.learn()
    assert (body["engine"], body["degraded"]) == ("rules", True)
    assert body["reflection_text"]
    sent = await service.api.post("/api/v1/traces", json=trace(external_id="b", playbook="desk"))
    sent.raise_for_status()
    for _ in range(8):
        await service.deliver_due_tickets()
    runs = await service.runs()
    assert all(run.state == "done" for run in runs if run.kind in ("evaluate", "reflect"))
    waiting = [run for run in runs if run.state != "done"]
    assert all(run.kind == "curate" and run.error is None for run in waiting)
    assert service.stub.calls == []


@pytest.mark.parametrize("route", ["trajectories/reflect", "transcripts/reflect", "workflow/run"])
@pytest.mark.parametrize("when_spent", ["refuse", "rules"])
async def test_every_request_that_waits_obeys_the_budget(
    openai_service: Service, runtime: Runtime, tenant: TestTenant, route: str, when_spent: str
) -> None:
    bodies: dict[str, Any] = {
        "trajectories/reflect": {
            "trajectory": {"query": "Add 2 and 3", "generated_answer": "6"},
            "ground_truth": "5",
        },
        "transcripts/reflect": {"messages": [{"role": "user", "content": "Add 2 and 3"}]},
        "workflow/run": {"query": "Add 2 and 3", "playbook": "sums"},
    }
    await limit(runtime, tenant, None, limit_tokens=10, when_spent=when_spent)
    answered = await openai_service.api.post(f"/api/v1/{route}", json=bodies[route])
    assert answered.status_code == (402 if when_spent == "refuse" else 200), answered.text
    if when_spent == "rules":
        assert answered.json()["engine"] == "rules"
    assert openai_service.stub.calls == []


async def test_cost_by_playbook_project_and_lesson(
    openai_service: Service, tenant: TestTenant
) -> None:
    service = openai_service
    body = await service.learn(playbook="desk", project_id="office")
    rows = (
        await service.api.get("/api/v1/usage", params={"group_by": "project_id,playbook"})
    ).json()
    (row,) = [row for row in rows["items"] if row["playbook"]]
    assert (row["project_id"], row["playbook"], row["call_count"]) == ("office", "desk", 1)
    lessons = (await service.api.get("/api/v1/usage", params={"group_by": "lesson_id"})).json()
    costs = {row["lesson_id"]: row for row in lessons["items"]}
    assert set(costs) == {body["reflection_id"], body["strategy_id"]}
    assert sum(row["input_tokens"] for row in costs.values()) == pytest.approx(
        row["input_tokens"], abs=1
    )
    mixed = await service.api.get("/api/v1/usage", params={"group_by": "lesson_id,day"})
    assert mixed.status_code == 422


async def test_key_of_a_project_sees_this_project_only(
    api: Any, runtime: Runtime, tenant: TestTenant, stub: StubProvider
) -> None:
    model: Any = open_llm("openai", model="gpt-4o-mini", api_key="k", base_url=stub.openai_url)
    llm = AccountedLLM(model, ModelAccounting(runtime.sessions))
    for project, calls in (("mine", 1), ("other", 2)):
        for _ in range(calls):
            await llm.complete(request(tenant, project_id=project))
    budgets = [
        {"period": "day", "limit_tokens": 10**6},
        {"period": "day", "limit_tokens": 10**6, "project_id": "mine"},
        {"period": "day", "limit_tokens": 10**6, "project_id": "other"},
    ]
    (await api.put("/api/v1/budgets", json={"items": budgets})).raise_for_status()
    made = await api.post("/api/v1/keys", json={"project_id": "mine", "scopes": ["admin"]})
    headers = {"Authorization": f"Bearer {made.json()['key']}"}

    async def sums(path: str, **params: str) -> list[dict[str, Any]]:
        answered = await api.get(f"/api/v1/{path}", params=params, headers=headers)
        return answered.json()["items"]

    assert [row["call_count"] for row in await sums("usage")] == [1]
    rows = await sums("usage", group_by="project_id")
    assert [(row["project_id"], row["call_count"]) for row in rows] == [("mine", 1)]
    assert await sums("usage", group_by="lesson_id") == []
    assert [budget["project_id"] for budget in await sums("budgets")] == ["mine"]
    stolen = await api.get("/api/v1/usage", params={"project_id": "other"}, headers=headers)
    assert stolen.status_code == 403
    raised = await api.put("/api/v1/budgets", json={"items": []}, headers=headers)
    assert raised.status_code == 403
    all_calls = (await api.get("/api/v1/usage", params={"group_by": "project_id"})).json()["items"]
    assert {row["project_id"]: row["call_count"] for row in all_calls} == {"mine": 1, "other": 2}
    await model.aclose()
