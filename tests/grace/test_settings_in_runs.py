"""Settings whose effect is seen in a run: the model, parallel steps, timeouts, replans, the web."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from memory_api.grace.tools.port import ToolContext, ToolFailed, ToolInput, ToolResult
from memory_api.grace.tools.web_search import WebSearchTool
from tests.grace.conftest import Agent, config
from tests.grace.test_agent_runs import KNOWN, UNKNOWN, Counter, counter, step
from tests.grace.test_agent_with_model import HARD, QUERY, Model, model, planned
from tests.support import hostile_receiver as hostile
from tests.support.cases import each_case

__all__ = ["counter", "model"]


async def test_settings_of_the_model_are_sent(agent: Agent, model: Model) -> None:
    agent.config = config(llm={"temperature": 0.7, "max_tokens": 321})
    await agent.ask(QUERY, interactive=False)
    sent = next(call for call in model.calls if "Answer the question" in call.system + call.user)
    assert sent.body["temperature"] == 0.7
    assert 321 in sent.body.values()


async def test_rules_judge_instead_of_the_model(agent: Agent, model: Model) -> None:
    agent.config = config(llm={"light_model_judgments": False})
    run = await agent.ask(QUERY, interactive=False)
    assert run["outcome"] == "success"
    assert len(model.calls) == 2, "the plan and the answer"


async def test_limit_of_steps(agent: Agent, model: Model) -> None:
    model.answers["plan"] = [planned(("rag_search", []), ("rag_search", []), ("reasoning", [1]))]
    agent.config = config(planner={"max_steps": 2})
    run = await agent.ask(HARD, interactive=False)
    assert (run["engine"], len(run["steps"])) == ("template", 2)


async def test_model_plans_from_the_complexity_that_is_set(agent: Agent, model: Model) -> None:
    assert (await agent.ask(QUERY, interactive=False))["engine"] == "llm"
    agent.config = config(planner={"simple_below": 0.4})
    assert (await agent.ask(QUERY, interactive=False))["engine"] == "template"


@pytest.mark.parametrize(("limit", "most"), [(1, 1), (3, 3)])
async def test_parallel_steps(agent: Agent, counter: Counter, limit: int, most: int,
                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    working: set[str] = set()
    seen: list[int] = []

    async def overlap(_self: Any, _context: ToolContext, given: ToolInput) -> ToolResult:
        working.add(given.query)
        for _ in range(20):
            await asyncio.sleep(0)
        seen.append(len(working))
        working.discard(given.query)
        return ToolResult("")

    monkeypatch.setattr(Counter, "run", overlap)
    agent.config = config(executor={"max_parallel": limit, "cooldown_seconds": 0})
    await agent.ask("count", plan={"steps": [step(1), step(2), step(3)]}, interactive=False)
    assert max(seen) == most


async def hang(_self: Any, _context: Any, _given: Any) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError


async def test_timeout_of_a_step(agent: Agent, counter: Counter,
                                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(Counter, "run", hang)
    agent.config = config(executor={"step_timeout_seconds": 0.01, "cooldown_seconds": 0})
    run = await agent.ask("count", plan={"steps": [step(1)]})
    assert run["steps"][0]["error"] == "The step took longer than 0.01 seconds."
    assert run["state"] == "failed"


async def test_second_replan_waits_for_the_cooldown(agent: Agent, counter: Counter) -> None:
    """Also across workers: the wait is a queued run, and the time of the last replan a column."""
    counter.failures = 9
    agent.config = config(executor={"cooldown_seconds": 3600})
    steps = [step(1, fallback="rag_search", query=KNOWN),
             step(2, "counter", 1, query=KNOWN, fallback="reasoning")]  # fmt: skip
    run_id = await agent.start(KNOWN, plan={"steps": steps}, interactive=False)
    await agent.work()
    run = await agent.get(run_id)
    assert (run["state"], run["replan_count"]) == ("queued", 1)
    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        await session.execute(
            text("update agent_runs set replanned_at = now() - interval '2 hours'")
        )
        await session.execute(text("update tickets set due_at = now()"))
    await agent.work()
    run = await agent.get(run_id)
    assert (run["state"], run["replan_count"]) == ("done", 2)
    assert [each["action"] for each in run["steps"]] == ["rag_search", "reasoning"]


async def test_warning_before_the_limit(agent: Agent, model: Model) -> None:
    run = await agent.ask(QUERY, interactive=False)
    assert "budget_warning" not in [kind for _, kind in await agent.events(run["id"])]
    agent.config = config(executor={"warn_cost_share": 0.001, "cooldown_seconds": 0})
    run = await agent.ask(QUERY, interactive=False)
    assert run["state"] == "done"
    assert [kind for _, kind in await agent.events(run["id"])].count("budget_warning") == 1


async def test_loop_ends_after_its_iterations(agent: Agent, model: Model) -> None:
    model.answers["act"] = [
        {"thought": "", "tool": "rag_search", "tool_query": QUERY, "answer": None}
    ]
    model.answers["plan"] = [planned(("run_legacy_agent", []))]
    agent.config = config(executor={"react_max_iterations": 2}, intervention={"max_rounds": 0})
    run = await agent.ask(HARD, interactive=False)
    assert run["found"] is False
    assert sum("Solve the task" in call.system + call.user for call in model.calls) == 2


async def test_doubt_asks_only_if_interactive(agent: Agent) -> None:
    agent.config = config(thresholds={"silent": 1, "notify": 1, "confirm": 0.01})
    assert (await agent.ask(KNOWN))["intervention"]["level"] == "confirm"
    agent.config = config(
        thresholds={"silent": 1, "notify": 1, "confirm": 0.01},
        intervention={"interactive": False},
    )
    assert (await agent.ask(KNOWN))["state"] == "done"


async def test_timeout_may_proceed(agent: Agent) -> None:
    agent.config = config(intervention={"timeout_seconds": 0.2, "auto_proceed_on_timeout": True})
    run_id = await agent.start(UNKNOWN)
    await agent.work()
    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        await session.execute(
            text("update interventions set expires_at = now() - interval '1 second'")
        )
    while not await agent.work():
        pass
    run = await agent.get(run_id)
    assert (run["state"], run["found"]) == ("done", False)


@pytest.fixture
async def web() -> AsyncIterator[tuple[str, list[str]]]:
    """A search engine that knows one page: its address, and the requests that it got."""
    asked: list[str] = []
    page = {"url": "https://example.org/cup", "title": "Cup",
            "content": "Palmeiras won the football championship of Brazil."}  # fmt: skip
    body = json.dumps({"results": [page]}).encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked


async def test_web_search_is_added_to_a_weak_search(
    agent: Agent, web: tuple[str, list[str]]
) -> None:
    url, asked = web
    agent.config = config(web_search={"url": url})
    run = await agent.ask(UNKNOWN, interactive=False)
    assert [each["action"] for each in run["steps"]] == ["rag_search", "reasoning", "web_search"]
    assert run["steps"][1]["depends_on"] == [1, 3]
    assert "Palmeiras" in run["answer"]
    assert run["sources"][0]["source"] == "https://example.org/cup"
    assert asked[0].startswith("GET /search?q=Who+won")
    agent.config = config(
        web_search={"url": url},
        search={"web_search_below": 0},
        intervention={"max_rounds": 0},
        replan={"confidence_threshold": 0},
    )
    run = await agent.ask(UNKNOWN, interactive=False)
    assert len(run["steps"]) == 2
    assert len(asked) == 1


async def test_web_search_that_is_down_ends_the_run_without_a_guess(agent: Agent) -> None:
    agent.config = config(web_search={"url": "http://127.0.0.1:9"})
    run = await agent.ask(UNKNOWN, interactive=False)
    assert run["steps"][2]["error"] == "The web search failed: No answer: ConnectionRefusedError."
    assert (run["state"], run["answer"]) == ("failed", None)


async def test_weak_search_is_replaced(agent: Agent, web: tuple[str, list[str]]) -> None:
    weak = {"web_search": {"url": web[0]}, "search": {"web_search_below": 0},
            "intervention": {"max_rounds": 0}}  # fmt: skip
    agent.config = config(**weak)
    run = await agent.ask(UNKNOWN, interactive=False)
    assert run["replan_count"] == 1
    assert run["steps"][0]["action"] == "web_search"
    agent.config = config(**weak, replan={"confidence_threshold": 0})
    assert (await agent.ask(UNKNOWN, interactive=False))["replan_count"] == 0


async def test_failed_search_beside_a_good_one_is_left_out(agent: Agent) -> None:
    agent.config = config(
        web_search={"url": "http://127.0.0.1:9"},
        search={"web_search_below": 1},
        executor={"cooldown_seconds": 0},
    )
    run = await agent.ask(KNOWN, interactive=False)
    assert "replanned" in [kind for _, kind in await agent.events(run["id"])]
    assert (run["state"], run["outcome"], run["replan_count"]) == ("done", "success", 1)
    assert [each["action"] for each in run["steps"]] == ["rag_search", "reasoning"]
    assert run["steps"][1]["depends_on"] == [1]


@each_case(
    "behavior, problem",
    [
        (hostile.send_300_mb, "The web search failed: The answer has more than 2,097,152 bytes."),
        (hostile.send_gzip_bomb, "^The web search answered without a list of results.$"),
        (hostile.send_deep_json, "^The web search answered without a list of results.$"),
        (hostile.redirect, "The web search answered 307."),
    ],
)
async def test_web_search_that_answers_badly(behavior: hostile.Behavior, problem: str) -> None:
    async with hostile.hostile_receiver(behavior) as receiver:
        context: Any = SimpleNamespace(config=config(web_search={"url": receiver.url}))
        with pytest.raises(ToolFailed, match=problem):
            await WebSearchTool().run(context, ToolInput(query="the cup"))
        assert receiver.sent_bytes < 12_000_000


async def test_timeout_plans_everything_again(agent: Agent, counter: Counter,
                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(Counter, "run", hang)
    agent.config = config(executor={"step_timeout_seconds": 2, "cooldown_seconds": 0})
    steps = [step(1, "rag_search", query=KNOWN), step(2, "counter", 1), step(3, "reasoning", 2)]
    run = await agent.ask(KNOWN, plan={"steps": steps}, interactive=False)
    assert [each["query"] for each in run["steps"]][1] == KNOWN
    assert run["steps"][0]["query"].startswith(f"{KNOWN} handbook.md")
    assert "A pending order cannot be refunded" in run["answer"]
    assert (run["state"], run["replan_count"]) == ("done", 1)
