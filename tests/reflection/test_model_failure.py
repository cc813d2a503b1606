"""The model fails while somebody waits, and in the background."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from memory_api.run_queue.port import Ticket
from memory_api.runs.queries import get_run
from memory_api.worker import process_ticket
from tests.support.model_service import GOOD, Serve, Service, trace
from tests.support.stub_provider import (
    bad_request,
    hang,
    html_page,
    max_tokens,
    overloaded,
    quota,
    rate_limited,
    refusal,
    reset,
    server_error,
    truncated,
    unauthorized,
    wrong_shape,
)

FAULTS: dict[str, tuple[Any, str, int]] = {
    # behaviour, code, exchanges in the foreground
    "429": (rate_limited(), "llm_rate_limited", 3),
    "500": (server_error(), "llm_server_error", 3),
    "529": (overloaded(), "llm_server_error", 3),
    "hang": (hang(), "llm_timeout", 3),
    "reset": (reset(), "llm_connection", 3),
    "reset halfway": (reset(halfway=True), "llm_connection", 3),
    "html": (html_page(), "llm_server_error", 3),
    "quota": (quota(), "llm_quota", 1),
    "401": (unauthorized(), "llm_auth", 1),
    "400": (bad_request(), "llm_bad_request", 1),
    "refusal": (refusal(), "llm_refused", 1),
    "cut": (max_tokens(GOOD), "llm_truncated", 2),
    "cut JSON": (truncated({"reflection": "x"}), "llm_unparseable", 2),
    "shape": (wrong_shape(), "llm_unparseable", 2),
}


def always(stub: Any, behaviour: Any) -> None:
    stub.behave = behaviour if callable(behaviour) else lambda call: behaviour


@pytest.mark.parametrize("fault", FAULTS)
async def test_rules_answer_as_degraded(service: Service, fault: str) -> None:
    behaviour, code, exchanges = FAULTS[fault]
    always(service.stub, behaviour)
    if fault == "hang":
        service.set_llm_timeout(0.2)
    body = await service.learn()
    assert (body["engine"], body["degraded"]) == ("rules", True)
    assert body["reflection_text"]
    assert body["reflection_text"] != GOOD["reflection"]
    run = await service.run(body["run_id"])
    assert (run.state, run.engine, run.degraded) == ("done", "rules", True)
    assert run.error["code"] == code
    assert len(service.stub.calls) == exchanges
    assert len(await service.calls()) == exchanges
    later = [one for one in await service.runs() if one.id != run.id]
    assert [(one.state, one.parent_id) for one in later] == [("queued", run.id)]


async def test_model_replaces_degraded_memories_later(service: Service) -> None:
    service.stub.queue(*[server_error()] * 3)
    first = await service.learn()
    service.clock.now += 60
    assert await service.deliver_due_tickets() == [None]
    improved, run = (await service.runs())[:2]
    assert str(run.id) == first["run_id"]
    assert (improved.state, improved.engine, improved.degraded) == ("done", "llm", False)
    for name, text in (("reflection", GOOD["reflection"]), ("strategy", GOOD["strategy"])):
        memory = await service.memory(first[f"{name}_id"])
        assert memory["content"] == text
        assert memory["observation_count"] == 1
        url = f"/api/v1/memories/{first[f'{name}_id']}/revisions"
        history = (await service.api.get(url)).json()["items"]
        assert [one["reason"] for one in history] == [None, "improved by model"]
        assert history[0]["content"] == first[f"{name}_text"]
    found = await service.api.post(
        "/api/v1/reflections/query", json={"query_text": "report in pages", "min_importance": 0}
    )
    assert GOOD["strategy"] in [one["content"] for one in found.json()["reflections"]]
    assert len(found.json()["reflections"]) == 2
    assert await service.deliver_due_tickets() == []


async def test_change_by_person_is_not_replaced(serve: Serve) -> None:
    service = await serve()
    service.stub.queue(*[server_error()] * 3)
    first = await service.learn()
    changed = await service.api.patch(
        f"/api/v1/memories/{first['reflection_id']}",
        json={"content": "What I saw myself", "reason": "mine"},
    )
    changed.raise_for_status()
    (await service.api.delete(f"/api/v1/memories/{first['strategy_id']}")).raise_for_status()
    service.clock.now += 60
    await service.deliver_due_tickets()
    assert (await service.memory(first["reflection_id"]))["content"] == "What I saw myself"
    listed = (await service.api.get("/api/v1/memories?kind=strategy")).json()["items"]
    assert listed == []


async def test_repeated_request_returns_current_answer(serve: Serve) -> None:
    service = await serve()
    service.stub.queue(*[server_error()] * 3)
    first = await service.learn(external_id="one")
    again = await service.learn(external_id="one")
    assert again == first | {"duplicate": True}
    service.clock.now += 60
    await service.deliver_due_tickets()
    improved = await service.learn(external_id="one")
    assert improved["reflection_text"] == GOOD["reflection"]
    assert improved["reflection_id"] == first["reflection_id"]


async def test_duplicate_gets_the_degraded_answer_if_the_second_run_is_dead(
    serve: Serve,
) -> None:
    service = await serve()
    service.stub.queue(*[server_error()] * 3)
    first = await service.learn(external_id="one")
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        second_run = await get_run(session, UUID(first["next_run_id"]))
        assert second_run is not None
        second_run.state = "dead"
    again = await service.learn(external_id="one")
    assert again == first | {"duplicate": True}


async def test_observation_of_known_lesson_is_not_improved(serve: Serve) -> None:
    service = await serve()
    service.stub.queue(*[server_error()] * 6)
    await service.learn()
    second = await service.learn(session_id="another")
    assert (second["result"], second["degraded"]) == ("already_known", True)
    assert sum(run.state == "queued" for run in await service.runs()) == 1


@pytest.mark.parametrize("fault", ["429", "quota", "refusal", "shape"])
async def test_fail_answers_an_error_and_the_run_can_be_retried(
    service: Service, fault: str
) -> None:
    policy = {"on_model_failure": "fail"}
    object.__setattr__(
        service.runtime, "settings", service.runtime.settings.model_copy(update=policy)
    )
    behaviour, code, _ = FAULTS[fault]
    always(service.stub, behaviour)
    answer = await service.generate()
    assert answer.status_code == (503 if fault == "429" else 502)
    assert answer.json()["code"] == code
    (run,) = await service.runs()
    assert (run.state, run.error["code"]) == ("failed", code)
    assert await service.deliver_due_tickets() == [], "nobody tries again unasked"
    service.set_answer()
    service.clock.now += 4000
    (await service.api.post(f"/api/v1/runs/{run.id}/retry")).raise_for_status()
    await service.deliver_due_tickets()
    assert (await service.run(run.id)).state == "done"


async def send(service: Service, **changes: Any) -> Ticket:
    """A trace for the worker; answers the ticket of its reflection, which it would be given once
    the trace is evaluated."""
    answer = await service.api.post("/api/v1/traces", json=trace(**changes))
    answer.raise_for_status()
    first = Ticket(service.tenant.id, answer.json()["run_id"])
    assert await process_ticket(service.background, first) is None
    return Ticket(service.tenant.id, (await service.run(first.run_id)).result["next_run_id"])


@pytest.mark.parametrize("fault", ["refusal", "shape", "400", "cut"])
async def test_failure_of_request_ends_as_dead_run(service: Service, fault: str) -> None:
    behaviour, code, _ = FAULTS[fault]
    always(service.stub, behaviour)
    ticket = await send(service)
    waits = [await process_ticket(service.background, ticket) for _ in range(5)]
    assert all(waits[:4])
    assert waits[4] is None
    run = await service.run(ticket.run_id)
    assert (run.state, run.attempt_count, run.error["code"]) == ("dead", 5, code)
    dead = (await service.api.get("/api/v1/runs?state=dead")).json()["items"]
    assert [one["error"]["code"] for one in dead] == [code]


@pytest.mark.parametrize("fault", ["429", "quota", "500", "hang", "reset", "401"])
async def test_provider_failure_costs_no_attempt(service: Service, fault: str) -> None:
    behaviour, code, _ = FAULTS[fault]
    always(service.stub, behaviour)
    ticket = await send(service)
    patience = service.runtime.settings.llm_timeout
    if fault == "hang":
        service.set_llm_timeout(0.2)
    for asked in range(1, 8):
        wait = await process_ticket(service.background, ticket)
        assert wait is not None
        assert wait >= timedelta(seconds=1)
        assert len(service.stub.calls) == asked, "the worker asks once"
        run = await service.run(ticket.run_id)
        assert (run.state, run.attempt_count, run.error["code"]) == ("queued", 0, code)
        service.clock.now += 400
    service.set_answer()
    service.set_llm_timeout(patience)
    assert await process_ticket(service.background, ticket) is None
    run = await service.run(ticket.run_id)
    assert (run.state, run.engine, run.degraded, run.error) == ("done", "llm", False, None)


async def test_other_runs_wait_without_calls_while_provider_fails(service: Service) -> None:
    always(service.stub, rate_limited(retry_after=90))
    tickets = [await send(service, external_id=str(number)) for number in range(4)]
    waits = [await process_ticket(service.background, ticket) for ticket in tickets]
    assert len(service.stub.calls) == 1
    assert all(wait is not None and wait >= timedelta(seconds=90) for wait in waits)
    waiting = [run for run in await service.runs() if run.kind == "reflect"]
    assert {run.attempt_count for run in waiting} == {0}


async def test_failure_of_single_trace_counts_as_attempt(serve: Serve) -> None:
    """Others are answered at the same time, so it is the trace and not the provider."""
    service = await serve(llm_timeout=0.2)
    healthy = service.stub.behave
    service.stub.behave = lambda call: hang() if "The poison" in call.user else healthy(call)
    poison = await send(service, external_id="poison", task_description="The poison")
    for number in range(5):
        good = await send(service, external_id=str(number), task_description=f"Task {number}")
        await asyncio.gather(
            process_ticket(service.background, poison), process_ticket(service.background, good)
        )
        service.clock.now += 400
    run = await service.run(poison.run_id)
    assert (run.state, run.error["code"]) == ("dead", "llm_timeout")


async def test_worker_finishes_request_of_dead_process_with_model(
    service: Service,
) -> None:
    """The lease runs out, the ticket comes, the model answers: nothing of a foreground run is
    special to a worker.
    """
    answer = await service.api.post(
        "/api/v1/reflections/generate", json=trace(), headers={"Prefer": "respond-async"}
    )
    assert answer.status_code == 202
    await service.deliver_due_tickets()
    run = await service.run(answer.json()["run_id"])
    assert (run.engine, run.result["reflection_text"]) == ("llm", GOOD["reflection"])


async def test_only_improved_reflection_is_curated(serve: Serve) -> None:
    """Rules stood in for the model: their words are not brought into the playbook first."""
    service = await serve()
    service.stub.queue(*[server_error()] * 3)
    first = await service.learn(playbook="reports")
    (improving,) = [run for run in await service.runs() if str(run.id) == first["next_run_id"]]
    assert (improving.kind, improving.state) == ("reflect", "queued")
    service.clock.now += 60
    await service.deliver_due_tickets()
    improved = await service.run(improving.id)
    curating = await service.run(improved.result["next_run_id"])
    assert curating.kind == "curate"
    assert curating.parent_id == improved.parent_id
