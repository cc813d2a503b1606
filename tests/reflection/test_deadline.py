"""A request that waits for a model has one deadline, which the client and the service share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_api.llm.deadline import MAX_WAIT_SECONDS, parse_wait
from tests.support.cases import each_case
from tests.support.model_service import GOOD, Serve, trace
from tests.support.stub_provider import hang, rate_limited


@each_case(
    ("prefer", "seconds"),
    [
        ("", 60),
        ("wait=5", 5),
        ("respond-async, wait=10", 10),
        ("return=minimal; wait = 7", 7),
        ('wait="9"', 9),
        ("wait=0", 1),
        ("wait=999999", MAX_WAIT_SECONDS),
        ("wait=-3", 60),
        ("wait=soon", 60),
        ("await=3", 60),
    ],
)
def test_wait_of_the_header(prefer: str, seconds: float) -> None:
    assert parse_wait(prefer, 60) == seconds


@pytest.mark.parametrize("faults", [[hang()] * 9, [rate_limited(1), hang(), hang()]])
async def test_answer_comes_before_the_deadline_and_a_worker_finishes(
    serve: Serve, faults: list[Any]
) -> None:
    service = await serve("openai", on_model_failure="fail")
    service.set_llm_timeout(100)  # longer than `asyncio.timeout`
    service.stub.queue(*faults)
    async with asyncio.timeout(60):
        answer = await service.api.post(
            "/api/v1/reflections/generate", json=trace(), headers={"Prefer": "wait=3"}
        )
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")
    assert "Prefer: wait=N" in answer.json()["detail"]
    (run,) = await service.runs()
    assert (run.state, run.error["code"]) == ("failed", "deadline_exceeded")


async def test_rules_answer_at_the_deadline_and_the_model_improves_it_later(serve: Serve) -> None:
    service = await serve("openai", request_timeout=1)
    service.set_llm_timeout(30)
    service.stub.queue(hang())
    body = await service.learn()
    assert (body["engine"], body["degraded"]) == ("rules", True)
    service.set_answer()
    await service.deliver_due_tickets()
    improved = next(run for run in await service.runs() if str(run.id) == body["next_run_id"])
    assert improved.result["reflection_text"] == GOOD["reflection"]


async def test_pause_longer_than_the_deadline_answers_503_with_retry_after(serve: Serve) -> None:
    service = await serve("openai", on_model_failure="fail")
    service.stub.queue(rate_limited(500))
    answer = await service.api.post(
        "/api/v1/reflections/generate", json=trace(), headers={"Prefer": "wait=3"}
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "llm_rate_limited")
    assert int(answer.headers["retry-after"]) == 500
    assert len(service.stub.calls) == 1
