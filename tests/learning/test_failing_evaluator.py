"""A model that gives no valid evaluation: the trace is learned from by its evidence."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from memory_api.runs.tables import RunRow
from memory_api.traces.schemas import OutcomeType
from tests.support.junit import junit
from tests.support.model_service import GOOD, Serve, Service, trace
from tests.support.stub_provider import (
    Call,
    Reply,
    answer,
    max_tokens,
    rate_limited,
    refusal,
    wrong_shape,
)

FAULTS: dict[str, tuple[Reply, str, int]] = {
    # reply, code, model calls of the evaluation
    "no scores": (wrong_shape(), "llm_unparseable", 2),
    "no number": (
        answer('{"scores": [{"criterion": "safety", "score": NaN, "reason": ""}]}'),
        "llm_unparseable",
        2,
    ),
    "prose": (answer("I would say it went well."), "llm_unparseable", 2),
    "truncated": (max_tokens({"scores": []}), "llm_truncated", 2),
    "refusal": (refusal(), "llm_refused", 1),
}


def is_evaluation(call: Call) -> bool:
    return "scores" in (call.schema or {})["properties"]


@pytest.fixture(params=["openai", "anthropic"])
async def service(request: pytest.FixtureRequest, serve: Serve) -> Service:
    return await serve(request.param, evaluators="deterministic,threshold,llm")


async def evaluate(service: Service, reply: Reply, **fields: Any) -> RunRow:
    """Sends a trace and executes its first run."""
    service.stub.behave = lambda call: reply if is_evaluation(call) else answer(GOOD)
    sent = await service.api.post("/api/v1/traces", json=trace(**fields))
    assert sent.status_code == 201, sent.text
    run_id = UUID(sent.json()["run_id"])
    await service.deliver_ticket(run_id)
    return await service.run(run_id)


@pytest.mark.parametrize("fault", FAULTS)
async def test_learning_goes_on_without_the_opinion(service: Service, fault: str) -> None:
    reply, code, call_count = FAULTS[fault]
    run = await evaluate(service, reply, test_report=junit(3, test_total="assert 3 == 4"))
    assert (run.state, run.engine, run.degraded) == ("done", "rules", True)
    assert run.result["verdict"] == OutcomeType.PARTIAL
    assert run.result["proven"] is True
    (failed,) = run.result["failed_evaluators"]
    assert (failed["evaluator"], failed["code"]) == ("llm", code)
    assert failed["detail"]
    assert sum(is_evaluation(call) for call in service.stub.calls) == call_count
    reflect_id = UUID(run.result["next_run_id"])
    await service.deliver_ticket(reflect_id)
    reflect = await service.run(reflect_id)
    assert (reflect.state, reflect.engine) == ("done", "llm")
    evaluations = await service.api.get(f"/api/v1/traces/{run.trace_id}/evaluations")
    assert {item["evaluator"] for item in evaluations.json()["items"]} == {"deterministic"}


async def test_opinion_after_a_second_question_counts(service: Service) -> None:
    scores = {"scores": [{"criterion": "safety", "score": 0.4, "reason": "It was close."}]}
    service.stub.queue(wrong_shape())
    run = await evaluate(service, answer(scores))
    assert (run.state, run.engine, run.degraded) == ("done", "llm", False)
    assert "failed_evaluators" not in run.result


async def test_provider_that_is_away_is_asked_later(service: Service) -> None:
    run = await evaluate(service, rate_limited(retry_after=1))
    assert run.state == "queued"
    assert run.result is None
    assert run.error["code"] == "llm_rate_limited"
