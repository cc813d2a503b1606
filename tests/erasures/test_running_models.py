"""What is erased while a model reads it is in nothing that the answer leads to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.erasures.test_erasures import SECRET, occurrences, trace
from tests.support.model_service import Serve, Service
from tests.support.stub_provider import answer

__all__ = ["occurrences"]
EPISODES = {"dreaming": 3, "summaries": 11}
ANSWERS: dict[str, dict[str, Any]] = {
    "dreaming": {
        "themes": [
            {
                "reflection": f"Three runs asked for {SECRET}.",
                "strategy": f"Before you ask, look {SECRET} up.",
                "episodes": [1, 2, 3],
            }
        ]
    },
    "summaries": {"summary": f"The user is {SECRET}.", "key_topics": [SECRET]},
}
HARMLESS: dict[str, dict[str, Any]] = {
    "dreaming": {"themes": []},
    "summaries": {"summary": "The user asked for something.", "key_topics": ["questions"]},
}


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve("openai")


async def erase_while_model_answers(service: Service, kind: str, target_id: str) -> None:
    """Deliver all tickets, and erase the target between the first call of the model and its
    answer."""
    asked, may_answer = threading.Event(), threading.Event()
    behave = service.stub.behave

    def wait_and_answer(call: Any) -> Any:
        asked.set()
        may_answer.wait(20)
        return behave(call)

    service.stub.behave = wait_and_answer
    running = asyncio.create_task(service.deliver_due_tickets())
    assert await asyncio.to_thread(asked.wait, 20)
    body = {"target_kind": kind, "target_id": target_id}
    erasure = (await service.api.post("/api/v1/erasures", json=body)).raise_for_status().json()
    await service.deliver_ticket(erasure["run_id"])
    may_answer.set()
    await running
    service.stub.behave = behave


@pytest.mark.parametrize("task", EPISODES)
async def test_text_on_an_erased_episode_is_not_stored(
    service: Service, task: str, occurrences: Any
) -> None:
    for number in range(EPISODES[task]):
        name = SECRET if number == 0 else f"Customer {number}"
        body = {"content": f"{name} asked", "kind": "episode", "importance": 0.8}
        made = await service.api.post("/api/v1/memories", json=body | {"session_id": "monday"})
        if number == 0:
            first = made.raise_for_status().json()["id"]
    started = await service.api.post(f"/api/v1/maintenance/{task}", json={})
    service.stub.behave = lambda call: answer(
        ANSWERS[task] if SECRET in call.text else HARMLESS[task]
    )
    await erase_while_model_answers(service, "memory", first)
    run_id = started.raise_for_status().json()["id"]
    await service.deliver_ticket(run_id)
    assert (await service.run(run_id)).state == "done", "without the episode"
    assert await occurrences(SECRET) == []


async def test_reply_on_an_erased_trace_is_not_stored(service: Service, occurrences: Any) -> None:
    body = trace(playbook=None)  # waits for no batch
    sent = (await service.api.post("/api/v1/traces", json=body)).raise_for_status().json()
    await service.deliver_due_tickets()  # the evaluation
    service.set_answer(explanation=f"{SECRET} was asked for.")
    await erase_while_model_answers(service, "trace", sent["trace_id"])
    assert "failed" in {run.state for run in await service.runs()}
    assert await occurrences(SECRET) == []
