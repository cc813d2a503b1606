"""The agent without a model: template plan, search, extractive answer, questions back."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api.auth.identity import Identity
from memory_api.grace import events, queries
from memory_api.grace.interventions import AGENT
from memory_api.grace.step import AgentRunStep
from memory_api.grace.tools import registry
from memory_api.grace.tools.port import Tool, ToolContext, ToolFailed, ToolInput, ToolResult
from memory_api.run_queue.port import Ticket
from memory_api.worker import RUN_STEPS, process_ticket
from tests.grace.conftest import HANDBOOK, URL, Agent, config
from tests.support.problems import assert_problem

KNOWN = "Can a pending order be refunded?"
UNKNOWN = "Who won the football championship of Brazil?"


async def test_answer_quotes_its_source(agent: Agent) -> None:
    run = await agent.ask(KNOWN, interactive=False)
    assert (run["state"], run["outcome"], run["found"]) == ("done", "success", True)
    assert "A pending order cannot be refunded." in run["answer"]
    assert run["answer"].endswith("[1]")
    source = run["sources"][0]
    assert HANDBOOK[source["start"] : source["end"]].strip() in run["answer"]
    assert source["source"] == "handbook.md"
    assert run["confidence"] >= 0.4
    assert [step["state"] for step in run["steps"]] == ["success", "success"]
    breakdown = run["steps"][0]["breakdown"]
    assert breakdown["search_quality"] == run["steps"][0]["confidence"]
    assert breakdown["hits"] >= 1
    assert 0 <= breakdown["mean"] <= breakdown["max"] <= 1
    assert {"variance", "agreement"} < breakdown.keys()
    assert run["engine"] == "template"


async def test_japanese_question_is_answered(agent: Agent) -> None:
    run = await agent.ask("未使用の商品はいつまで返品できますか", interactive=False)
    assert "十四日以内" in run["answer"]


async def test_unknown_question_is_asked_back_and_goes_on(agent: Agent) -> None:
    run = await agent.ask(UNKNOWN, interactive=False)
    assert run["state"] == "waiting"
    question = run["intervention"]
    assert (question["level"], question["kind"], question["step_id"]) == ("escalate", "step", 1)
    run = await agent.go_on(run, "input", "How many working days do parcels to Norway take?")
    assert run["state"] == "done"
    assert "nine working days" in run["answer"]


async def test_other_steps_go_on_without_a_skipped_one(agent: Agent) -> None:
    steps = [
        step(1, "ask_user", query="Which order?"),
        step(2, "rag_search", query=KNOWN),
        step(3, "reasoning", 1, 2),
    ]
    run = await agent.go_on(await agent.ask(KNOWN, plan={"steps": steps}), "skip")
    assert [each["state"] for each in run["steps"]] == ["skipped", "success", "success"]
    assert "A pending order cannot be refunded." in run["answer"]


async def test_search_has_no_reference_to_a_skipped_question(agent: Agent) -> None:
    steps = [
        step(1, "ask_user", query="Which order?"),
        step(2, "rag_search", 1, query="pending order refunded {1}"),
        step(3, "reasoning", 2),
    ]
    run = await agent.go_on(await agent.ask(KNOWN, plan={"steps": steps}), "skip")
    assert run["steps"][1]["query"] == "pending order refunded"
    assert "A pending order cannot be refunded." in run["answer"]


async def test_nothing_found_is_not_guessed(agent: Agent) -> None:
    agent.config = config(search={"min_score": 0.3}, intervention={"max_rounds": 0})
    run = await agent.ask(UNKNOWN)
    assert (run["state"], run["outcome"], run["found"]) == ("done", "partial", False)
    assert run["answer"] == "The sources do not answer this question."
    assert run["sources"] == []


async def test_events_are_streamed_and_resumed(agent: Agent) -> None:
    run = await agent.ask(KNOWN, interactive=False)
    events = await agent.events(run["id"])
    assert [kind for _, kind in events] == [
        "run_queued",
        "plan_created",
        *("step_started", "step_finished") * 2,
        "run_finished",
    ]
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    assert await agent.events(run["id"], after=5) == events[5:]
    bad = await agent.api.get(f"{URL}/{run['id']}/events", headers={"Last-Event-ID": "x"})
    assert_problem(bad, 422, "invalid")


async def test_intervention_is_answered_once(agent: Agent) -> None:
    run = await agent.ask(UNKNOWN)
    assert_problem(await agent.answer(run, "input", " "), 422, "invalid")
    assert (await agent.answer(run, "skip")).status_code == 202
    assert_problem(await agent.answer(run, "skip"), 409, "conflict")
    await agent.work()
    after = await agent.get(run["id"])
    assert [step["state"] for step in after["steps"]] == ["skipped", "partial"]
    assert (after["state"], after["outcome"], after["found"]) == ("done", "partial", False)
    listed = (await agent.api.get(f"{URL}/{run['id']}/interventions")).json()["items"]
    assert [(each["state"], each["action"]) for each in listed] == [("answered", "skip")]


async def test_waiting_run_holds_nothing_and_times_out(agent: Agent) -> None:
    agent.config = config(intervention={"timeout_seconds": 2.0})
    run_id = await agent.start(UNKNOWN)
    await agent.work()
    run = await agent.get(run_id)
    assert run["state"] == "waiting"
    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        held = await session.scalar(text("select count(*) from runs where state = 'running'"))
        assert held == 0
        await session.execute(
            text("update interventions set expires_at = now() - interval '1 second'")
        )
    while not await agent.work():
        pass
    run = await agent.get(run_id)
    assert (run["state"], run["outcome"]) == ("cancelled", "cancelled")


async def test_cancel_twice_is_the_same(agent: Agent) -> None:
    run = await agent.ask(UNKNOWN)
    for _ in range(2):
        answer = await agent.api.post(f"{URL}/{run['id']}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert_problem(await agent.answer(run, "proceed"), 409, "conflict")
    done = await agent.ask(KNOWN, interactive=False)
    answer = await agent.api.post(f"{URL}/{done['id']}/cancel")
    assert answer.json()["state"] == "done"


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"steps": [{"step_id": 1, "action": "dance", "description": "d"}]}, "rag_search"),
        (
            {"steps": [{"step_id": n, "action": "reasoning", "description": "d",
                        "depends_on": [3 - n]} for n in (1, 2)]},
            "not earlier",
        ),
        (
            {"steps": [{"step_id": n, "action": "reasoning", "description": "d"}
                       for n in range(1, 1001)]},
            "at most 20",
        ),
        ({"steps": [{"step_id": 1, "action": "reasoning", "description": "d", "depends_on": [7]}]},
         "missing"),
    ],
)  # fmt: skip
async def test_bad_plan_is_refused(agent: Agent, plan: dict[str, Any], words: str) -> None:
    answer = await agent.api.post(URL, json={"query": "q", "plan": plan})
    assert_problem(answer, 422, "invalid")
    assert words in answer.json()["detail"]


async def test_bad_requests(agent: Agent, http: AsyncClient, make_tenant: Any) -> None:
    answer = await agent.api.post(URL, json={"query": "q", "collections": ["nope"]})
    assert_problem(answer, 422, "invalid")
    assert "'handbook'" in answer.json()["detail"]
    plan = {"steps": [step(1, "rag_search", collection="nope")]}
    answer = await agent.api.post(URL, json={"query": "q", "plan": plan})
    assert_problem(answer, 422, "invalid")
    assert answer.json()["detail"] == "Unknown collection 'nope'. This project has: 'handbook'."
    run = await agent.ask(KNOWN, interactive=False)
    other = (await make_tenant()).auth()
    for path in ("", "/events", "/interventions"):
        assert_problem(await http.get(f"{URL}/{run['id']}{path}", headers=other), 404, "not_found")
    answer = await http.post(f"{URL}/{run['id']}/cancel", headers=other)
    assert_problem(answer, 404, "not_found")


class Killed(BaseException):
    """The worker dies: nothing catches it."""


class Counter(Tool):
    """A tool that counts its calls and fails, or is cut off, when a test says so."""

    name = "counter"
    description = "Counts."
    calls: list[str]
    failures = 0
    dies = False

    def __init__(self) -> None:
        self.calls = []

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        self.calls.append(given.query)
        if self.dies:
            raise Killed
        if len(self.calls) <= self.failures:
            raise ToolFailed("The counter is out of order.")
        return ToolResult(f"counted {given.query}")


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    tool = Counter()
    tools = {**registry.load_tools(), tool.name: tool}
    monkeypatch.setattr(registry, "load_tools", lambda: tools)
    return tool


def step(number: int, action: str = "counter", *depends_on: int, **more: Any) -> dict[str, Any]:
    return {
        "step_id": number,
        "action": action,
        "description": f"Step {number}",
        "query": None if action == "reasoning" else f"q{number}",
        "depends_on": list(depends_on),
    } | more


async def test_steps_run_in_dependency_order(agent: Agent, counter: Counter) -> None:
    agent.config = config(executor={"max_parallel": 2, "cooldown_seconds": 0})
    plan = {"steps": [step(1), step(2), step(3, "counter", 1, 2), step(4, "counter", 3)]}
    run = await agent.ask("count", plan=plan | {"engine": "llm"}, interactive=False)
    assert run["engine"] == "caller", "whatever the plan says"
    assert sorted(counter.calls[:2]) == ["q1", "q2"]
    assert counter.calls[2:] == ["q3", "q4"]
    assert [each["attempt_count"] for each in run["steps"]] == [1, 1, 1, 1]


async def test_failed_step_uses_its_fallback(agent: Agent, counter: Counter) -> None:
    counter.failures = 9
    plan = {"steps": [step(1, fallback="rag_search", query=KNOWN), step(2, "reasoning", 1)]}
    run = await agent.ask(KNOWN, plan=plan, interactive=False)
    assert (run["state"], run["replan_count"]) == ("done", 1)
    assert run["steps"][0]["action"] == "rag_search"
    assert len(counter.calls) == 1
    assert "cannot be refunded" in run["answer"]


async def test_failed_step_skips_those_that_depend_on_it(agent: Agent, counter: Counter) -> None:
    counter.failures = 9
    plan = {"steps": [step(1), step(2, "reasoning", 1)]}
    run = await agent.ask("count", plan=plan)
    assert [each["state"] for each in run["steps"]] == ["failed", "skipped"]
    assert run["steps"][0]["error"] == "The counter is out of order."
    assert (run["state"], run["outcome"], run["answer"]) == ("failed", "failed", None)
    assert run["error"] == {"message": "Step 1 (counter) failed: The counter is out of order."}


async def test_slow_step_times_out(agent: Agent, monkeypatch: pytest.MonkeyPatch,
                                   counter: Counter) -> None:  # fmt: skip
    async def hang(_self: Any, _context: Any, _given: Any) -> ToolResult:
        raise TimeoutError

    monkeypatch.setattr(Counter, "run", hang)
    run = await agent.ask("count", plan={"steps": [step(1, timeout_seconds=1)]})
    assert run["steps"][0]["error"] == "The step took longer than 1 seconds."


async def die_during(agent: Agent, run_id: str) -> None:
    """A worker that is killed while a tool works: nothing after it is stored."""
    with pytest.raises(Killed):
        await agent.work()
    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        await session.execute(
            text("update runs set lease_until = now() - interval '1 second' where kind = 'agent'")
        )


async def take_over(agent: Agent) -> None:
    """Another worker gets the ticket again."""

    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        run_id: UUID = await session.scalar(
            text("select active_run_id from agent_runs where active_run_id is not null")
        )
    steps = {**RUN_STEPS, AGENT: AgentRunStep(agent.config)}
    await process_ticket(agent.runtime, Ticket(agent.tenant.id, run_id), steps)
    await agent.work()


async def test_killed_worker_repeats_no_finished_step(agent: Agent, counter: Counter) -> None:
    plan = {"steps": [step(1), step(2, "counter", 1), step(3, "counter", 2)]}
    run_id = await agent.start("count", plan=plan, interactive=False)
    original = counter.run

    async def die_at_second(context: ToolContext, given: ToolInput) -> ToolResult:
        counter.dies = given.query == "q2" and counter.calls.count("q2") == 0
        return await original(context, given)

    counter.run = die_at_second  # type: ignore[method-assign]
    await die_during(agent, run_id)
    await take_over(agent)
    run = await agent.get(run_id)
    assert run["state"] in ("done", "failed")
    assert counter.calls == ["q1", "q2", "q2", "q3"]
    assert [each["attempt_count"] for each in run["steps"]] == [1, 2, 1]


async def test_interrupted_step_with_effects_is_asked_about(
    agent: Agent, counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counter, "idempotent", False)
    run_id = await agent.start("count", plan={"steps": [step(1)]})
    counter.dies = True
    await die_during(agent, run_id)
    counter.dies = False
    await take_over(agent)
    run = await agent.get(run_id)
    assert run["intervention"]["kind"] == "interrupted"
    assert counter.calls == ["q1"]
    run = await agent.go_on(run, "retry")
    assert counter.calls == ["q1", "q1"]


async def test_agent_asks_the_person(agent: Agent, counter: Counter) -> None:
    plan = {"steps": [step(1, "ask_user", query="Which order?"), step(2, "counter", 1)]}
    run = await agent.ask("count", plan=plan)
    assert run["intervention"]["message"] == "Which order?"
    run = await agent.go_on(run, "input", "Order 7")
    assert run["steps"][0]["output"] == "Order 7"
    assert counter.calls == ["q2"]


async def test_streams_of_a_run_go_on_after_a_lost_connection(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.05)
    drivers: list[Any] = []
    load = queries.load_progress

    async def watched(driver: Any, *arguments: Any) -> Any:
        drivers.append(driver)
        return await load(driver, *arguments)

    monkeypatch.setattr(queries, "load_progress", watched)
    run_id, feed = UUID(await agent.start(KNOWN)), events.feed_of(agent.runtime.sessions)
    key = (await agent.api.get("/api/v1/keys")).json()["items"][0]
    caller = Identity(agent.tenant.id, UUID(key["id"]), frozenset())
    early = await feed.open(caller, run_id, 0)
    late = await feed.open(caller, run_id, 1)
    assert [len(feed.take(stream)) for stream in (early, late)] == [1, 0]
    drivers[-1].terminate()
    await agent.work()

    async def read(stream: events.EventStream) -> list[str]:
        return [text async for text in events.stream_events(feed, stream)]

    first, second = await asyncio.gather(read(early), read(late))
    assert first == second
    assert "event: run_finished" in first[-1]
    other = Identity(UUID(int=1), UUID(int=1), frozenset())
    assert (await feed.open(other, run_id, 0)).project_id is None, "another tenant"


@pytest.mark.parametrize("follow", [True, False])
async def test_stream_is_kept_alive_and_ends_with_an_error_without_a_database(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setattr(events, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(events, "KEEP_ALIVE_SECONDS", 0.02)
    sessions = agent.runtime.sessions
    run_id, feed = UUID(await agent.start(KNOWN)), events.EventFeed(sessions)
    key = (await agent.api.get("/api/v1/keys")).json()["items"][0]
    stream = await feed.open(Identity(agent.tenant.id, UUID(key["id"]), frozenset()), run_id, 1)
    received = events.stream_events(feed, stream, follow=follow)
    if follow:
        assert [await anext(received) for _ in range(3)] == [": keep-alive\n\n"] * 3
    lost = ConnectionRefusedError("refused")

    def refuse(*_: Any) -> Any:
        raise lost

    monkeypatch.setattr(queries, "load_progress", refuse)  # the connection that it has
    monkeypatch.setattr(type(sessions), "listening_connection", refuse)  # and any other
    rest = [each async for each in received]
    if follow:
        (error,) = (each for each in rest if not each.startswith(":"))
        assert error.startswith("event: error\ndata: {"), error
        assert json.loads(error.split("data: ")[1])["code"] == "unavailable"
    else:
        assert rest == []
    with pytest.raises(Exception, match="refused"):
        await feed.open(Identity(agent.tenant.id, UUID(key["id"]), frozenset()), run_id, 1)
