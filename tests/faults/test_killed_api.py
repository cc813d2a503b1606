"""The API is killed with -9 during a step of an agent run, before its question and during a replan.

A lock on the search index holds the step, so that the kill is always in the middle of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.grace.conftest import HANDBOOK, URL
from tests.grace.test_agent_runs import KNOWN, UNKNOWN, step
from tests.support.installation import Installation, until


@pytest.fixture
def api(installation: Installation) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {installation.tenant().key}"}
    with httpx2.Client(base_url=installation.url, headers=headers, timeout=30) as client:
        yield client


@contextmanager
def held_searches(installation: Installation) -> Iterator[None]:
    with asyncio.Runner() as runner:
        holder = runner.run(asyncpg.connect(installation.pg.url("postgres")))
        runner.run(holder.execute("begin; lock table postings in access exclusive mode"))
        try:
            yield
        finally:
            runner.run(holder.close())


def await_steps(installation: Installation, run_id: str, state: str, step_id: int) -> None:
    statement = (
        "select from agent_steps where agent_run_id = $1 and step_id = $2 and state = $3"
        " and plan_number = (select plan_number from agent_runs where id = $1)"
    )
    until(lambda: installation.rows(statement, run_id, step_id, state), f"step {step_id} {state}")


def await_state(installation: Installation, run_id: str, state: str) -> None:
    statement = "select from agent_runs where id = $1 and state = $2"
    until(lambda: installation.rows(statement, run_id, state), state)


def read_events(client: httpx2.Client, run_id: str, after: int) -> list[tuple[int, str]]:
    answer = client.get(f"{URL}/{run_id}/events", headers={"Last-Event-ID": str(after)})
    blocks = [block.splitlines() for block in answer.text.strip().split("\n\n")]
    return [(int(block[0].removeprefix("id: ")), block[1]) for block in blocks]


def read_until_killed(client: httpx2.Client, run_id: str, seen: list[tuple[int, str]]) -> None:
    """Follow a stream until its connection breaks."""
    number = 0
    with suppress(httpx2.HTTPError), client.stream("GET", f"{URL}/{run_id}/events") as answer:
        for line in answer.iter_lines():
            if line.startswith("id: "):
                number = int(line.removeprefix("id: "))
            elif line.startswith("event: "):
                seen.append((number, line))


def test_agent_run_completes_without_the_api(
    installation: Installation, api: httpx2.Client
) -> None:
    api.post("/api/v1/collections", json={"name": "handbook"}).raise_for_status()
    documents = "/api/v1/collections/handbook/documents"
    added = api.post(documents, params={"source": "handbook.md"}, content=HANDBOOK.encode())
    added.raise_for_status()
    until(lambda: api.get(documents).json()["items"][0]["state"] == "done", "the document")
    steps = [
        step(1, "rag_search", query=KNOWN),
        step(2, "ask_user", 1, query="Which order?"),
        step(3, "rag_search", 2, query=UNKNOWN, fallback="reasoning"),
        step(4, "reasoning", 1, query=KNOWN),
    ]
    body: dict[str, Any] = {"query": KNOWN, "plan": {"steps": steps}, "interactive": False}
    seen: list[tuple[int, str]] = []
    with held_searches(installation), ThreadPoolExecutor(1) as pool:
        created = api.post(URL, json=body)
        assert created.status_code == 202, created.text
        run_id = created.json()["id"]
        stream = pool.submit(read_until_killed, api, run_id, seen)
        until(lambda: "event: step_started" in [kind for _, kind in seen], "the stream")
        assert not stream.done()
        installation.kill("api")
        stream.result(10)
    await_state(installation, run_id, "waiting")
    installation.run("api")
    installation.await_ready()
    seen += read_events(api, run_id, seen[-1][0])
    run = api.get(f"{URL}/{run_id}").json()
    answer_url = f"{URL}/{run_id}/interventions/{run['intervention']['id']}/answer"
    with held_searches(installation):
        answered = api.post(answer_url, json={"action": "input", "input": "Order 7"})
        assert answered.status_code == 202
        await_steps(installation, run_id, "running", 3)
        installation.kill("api")
    await_state(installation, run_id, "waiting")  # what was found does not fit step 3
    installation.run("api")
    installation.await_ready()
    assert api.post(answer_url, json={"action": "skip"}).status_code == 409
    run = api.get(f"{URL}/{run_id}").json()
    assert run["intervention"]["step_id"] == 3
    answer_url = f"{URL}/{run_id}/interventions/{run['intervention']['id']}/answer"
    assert api.post(answer_url, json={"action": "proceed"}).status_code == 202
    await_state(installation, run_id, "done")
    run = api.get(f"{URL}/{run_id}").json()
    assert {each["state"] for each in run["steps"]} <= {"success", "partial"}
    assert (run["replan_count"], run["found"]) == (1, True)
    seen += read_events(api, run_id, seen[-1][0])
    assert [number for number, _ in seen] == list(range(1, len(seen) + 1))
    kinds = [kind.removeprefix("event: ") for _, kind in seen]
    assert [kinds.count(each) for each in ("replanned", "run_finished", "step_started")] == [
        1,
        1,
        4,
    ]
