"""Evaluations in the database and over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from asyncpg import ForeignKeyViolationError

from memory_api.core.ids import new_id
from memory_api.evaluation.evaluate import evaluate_trace, store_evaluation
from memory_api.evaluation.queries import list_evaluations
from memory_api.evaluation.reflection_policy import find_conflict
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationResults,
    EvaluatorResult,
)
from memory_api.runtime import Runtime
from memory_api.traces.queries import get_trace, list_events, to_events
from memory_api.traces.schemas import OutcomeType
from tests.conftest import TestTenant
from tests.support.evaluation_cases import call
from tests.support.junit import junit
from tests.support.problems import assert_problem

FAILED = junit(1, test_x="assert 3 == 4")


async def send(api: httpx2.AsyncClient, **fields: Any) -> UUID:
    """A trace that nobody has evaluated yet."""
    failed = call("search", "b", "no", error={"message": "no"})
    events = call("search", "a") + failed + call("search", "c")
    body = {"events": events, "outcome": "success"} | fields
    answer = await api.post("/api/v1/traces?reflect=never", json=body)
    answer.raise_for_status()
    return UUID(answer.json()["trace_id"])


async def store(
    runtime: Runtime, tenant: TestTenant, trace_id: UUID, run_id: UUID | None = None
) -> EvaluationResults:
    run_id = run_id or new_id()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        trace, events = await get_trace(session, trace_id), await list_events(session, trace_id)
    assert trace is not None
    evaluation = await evaluate_trace(runtime, trace, to_events(events), run_id)
    await keep(runtime, tenant, trace_id, evaluation, run_id)
    return evaluation


async def keep(
    runtime: Runtime,
    tenant: TestTenant,
    trace_id: UUID,
    evaluation: EvaluationResults,
    run_id: UUID | None = None,
) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        conflict = find_conflict(evaluation, OutcomeType.SUCCESS)
        await store_evaluation(session, trace_id, run_id or new_id(), evaluation, conflict)


async def items(api: httpx2.AsyncClient, trace_id: UUID) -> list[dict[str, Any]]:
    answer = await api.get(f"/api/v1/traces/{trace_id}/evaluations")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["next_cursor"] is None
    return body["items"]


async def test_evaluation_is_stored_and_returned(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    scored = {"quality_score": 0.9}
    trace_id, run_id = await send(api, test_report=FAILED, metadata=scored), new_id()
    assert await items(api, trace_id) == []
    evaluation = await store(runtime, tenant, trace_id, run_id)
    assert (evaluation.verdict, evaluation.proven) == (OutcomeType.FAILURE, True)
    found = await items(api, trace_id)
    assert [(i["evaluator"], i["criterion"], round(i["score"], 3)) for i in found] == [
        ("deterministic", "correctness", 0.25),
        ("deterministic", "efficiency", 0.667),
        ("threshold", "correctness", 0.9),
    ]
    assert found[0]["reasons"][0] == "1 of 2 tests failed."
    assert {i["run_id"] for i in found} == {str(run_id)}
    assert [i["declared"] for i in found] == [True, False, False]


async def test_conflict_is_shown_until_the_check_agrees(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    trace_id = await send(api, test_report=FAILED)
    await store(runtime, tenant, trace_id)
    path = f"/api/v1/traces/{trace_id}"
    trace = (await api.get(path)).json()
    assert trace["outcome"] == "success"
    assert (trace["conflict"]["reported"], trace["conflict"]["check"]) == ("success", "failure")
    assert trace["conflict"]["reasons"][0] == "1 of 2 tests failed."
    passed = {"outcome": "success", "test_report": junit(1), "reflect": "never"}
    (await api.post(f"{path}/outcome", json=passed)).raise_for_status()
    await store(runtime, tenant, trace_id)
    assert (await api.get(path)).json()["conflict"] is None


async def test_storing_twice_changes_nothing(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    trace_id = await send(api, test_report=FAILED)
    await store(runtime, tenant, trace_id)
    last = new_id()
    await store(runtime, tenant, trace_id, last)
    found = await items(api, trace_id)
    assert [i["criterion"] for i in found] == ["correctness", "efficiency"]
    assert {i["run_id"] for i in found} == {str(last)}


async def test_score_no_longer_given_is_deleted(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    trace_id = await send(api)
    safety, helpful = (
        CriterionScore(Criterion.SAFETY, 0.5, ("so",)),
        CriterionScore(Criterion.HELPFULNESS, 1, ()),
    )
    first = EvaluationResults(
        {"a": EvaluatorResult((safety, helpful)), "b": EvaluatorResult((safety,))}
    )
    await keep(runtime, tenant, trace_id, first)
    await keep(runtime, tenant, trace_id, EvaluationResults({"a": EvaluatorResult((helpful,))}))
    found = [(i["evaluator"], i["criterion"]) for i in await items(api, trace_id)]
    assert found == [("a", "helpfulness"), ("b", "safety")]
    await keep(
        runtime,
        tenant,
        trace_id,
        EvaluationResults({"a": EvaluatorResult(), "b": EvaluatorResult()}),
    )
    assert await items(api, trace_id) == []


async def test_long_evaluator_output_is_truncated(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    trace_id = await send(api)
    loud = CriterionScore(Criterion.SAFETY, 0.5, ("a\x00b " * 900,) * 50)
    twice = EvaluatorResult((loud, CriterionScore(Criterion.SAFETY, 1.0, ())))
    await keep(runtime, tenant, trace_id, EvaluationResults({"own": twice}))
    (row,) = await items(api, trace_id)
    assert (row["score"], len(row["reasons"])) == (0.5, 10)
    assert max(map(len, row["reasons"])) <= 400


async def test_late_evidence_is_evaluated(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    trace_id = await send(api)
    assert (await store(runtime, tenant, trace_id)).verdict is None
    late = {"outcome": "success", "test_report": FAILED, "reflect": "never"}
    (await api.post(f"/api/v1/traces/{trace_id}/outcome", json=late)).raise_for_status()
    assert (await store(runtime, tenant, trace_id)).verdict is OutcomeType.FAILURE
    assert "correctness" in {i["criterion"] for i in await items(api, trace_id)}


async def test_evaluator_knows_of_redacted_secret(
    runtime: Runtime, tenant: TestTenant, api: httpx2.AsyncClient
) -> None:
    key = "sk-proj-" + "a1B2" * 12
    said = [{"event_type": "llm_response", "content": f"The key is {key}"}]
    trace_id = await send(api, events=said)
    await store(runtime, tenant, trace_id)
    (row,) = await items(api, trace_id)
    assert (row["criterion"], row["score"]) == ("safety", 0.0)
    assert key not in str(row)


async def test_other_tenant_sees_nothing(
    runtime: Runtime,
    tenant: TestTenant,
    api: httpx2.AsyncClient,
    http: httpx2.AsyncClient,
    make_tenant: Callable[[], Awaitable[TestTenant]],
) -> None:
    trace_id, other = await send(api, test_report=FAILED), await make_tenant()
    await store(runtime, tenant, trace_id)
    path = f"/api/v1/traces/{trace_id}/evaluations"
    assert_problem(await http.get(path, headers=other.auth()), 404, "not_found")
    async with runtime.sessions.for_tenant(other.id) as session:
        assert await list_evaluations(session, trace_id) == []
    with pytest.raises(ForeignKeyViolationError):
        await keep(
            runtime,
            other,
            trace_id,
            EvaluationResults({"a": EvaluatorResult((CriterionScore(Criterion.SAFETY, 1, ()),))}),
        )


async def test_unknown_trace_is_404(api: httpx2.AsyncClient) -> None:
    assert_problem(await api.get(f"/api/v1/traces/{uuid4()}/evaluations"), 404, "not_found")
