"""Real workers that are killed with -9 during a step, during a question, during a wait and during a
replan: the run completes, no finished step runs again, and the limits are kept.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from memory_api.core.db_errors import NoFreeConnection
from memory_api.grace import executor, queries
from memory_api.grace.tools.port import ToolResult
from memory_api.grace.tools.rag_search import RAGSearchTool
from tests.grace.conftest import URL, Agent
from tests.grace.test_agent_runs import KNOWN, step

PATCH = """
import os, signal
from memory_api.grace import executor, plan_changes, step as agent_step
from memory_api.grace.config import GraceConfig
from memory_api.grace.tools import port, rag_search, reasoning
steps["agent"] = agent_step.AgentRunStep(
    GraceConfig.model_validate({{"executor": {{"cooldown_seconds": 0, "max_replans": 1}}}})
)
point = {point!r}
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def watch(tool):
    run = tool.run
    async def watched(self, context, given):
        with open({log!r}, "a") as log:
            log.write(given.query + "\\n")
        if point == "step":
            die()
        if given.query == "broken" and self.name == "rag_search":
            raise port.ToolFailed("Out of order.")
        return await run(self, context, given)
    tool.run = watched
watch(rag_search.RAGSearchTool)
watch(reasoning.ReasoningTool)
def die_in(module, name, where):
    original = getattr(module, name)
    async def dying(*arguments):
        await original(*arguments)
        if point == where:
            die()
    setattr(module, name, dying)
die_in(executor, "ask_person", "question")
write = plan_changes.write_plan
def write_plan(agent_run, plan, kept):
    rows = write(agent_run, plan, kept)
    if point == "replan" and agent_run.replan_count:
        die()
    return rows
plan_changes.write_plan = write_plan
"""


async def test_run_survives_a_kill_at_each_point(
    agent: Agent, start_worker: Any, tmp_path: Path
) -> None:
    log = tmp_path / "calls"

    async def start(point: str) -> Any:
        return await start_worker(lease=0.6, patch=PATCH.format(point=point, log=str(log)))

    async def die_at(point: str) -> None:
        victim = await start(point)
        assert await victim.wait() == -9

    async def wait_for(state: str) -> dict[str, Any]:
        while (run := await agent.get(run_id))["state"] != state:
            await asyncio.sleep(0.05)
        return run

    steps = [
        step(1, "rag_search", query=KNOWN),
        step(2, "ask_user", 1, query="Which order?"),
        step(3, "rag_search", 1, 2, query="broken", fallback="reasoning"),
        step(4, "reasoning", 1, query="pending order"),
    ]
    run_id = await agent.start(KNOWN, plan={"steps": steps}, interactive=False)
    await die_at("step")
    await die_at("question")
    asker = await start("")
    run = await wait_for("waiting")
    await asker.kill()
    assert (await agent.answer(run, "input", "Order 7")).status_code == 202
    await die_at("replan")
    survivor = await start("")
    run = await wait_for("waiting")  # what was found does not fit "broken"
    assert run["intervention"]["step_id"] == 3
    assert (await agent.answer(run, "proceed")).status_code == 202
    run = await wait_for("done")
    assert await survivor.stop() == 0
    calls = log.read_text().splitlines()
    assert calls.count(KNOWN) == 2, "the first call was cut off"
    assert (calls.count("broken"), calls.count("pending order")) == (2, 1), "once as the fallback"
    assert [each["state"] for each in run["steps"]] == ["success"] * 4
    assert run["replan_count"] == 1
    assert "cannot be refunded" in run["answer"]
    questions = (await agent.api.get(f"{URL}/{run_id}/interventions")).json()["items"]
    assert [each["state"] for each in questions] == ["answered"] * 2
    events = await agent.events(run_id)
    assert [number for number, _ in events] == list(range(1, len(events) + 1))
    kinds = [kind for _, kind in events]
    assert (kinds.count("replanned"), kinds.count("run_finished")) == (1, 1)


async def test_worker_that_always_dies_ends_the_run(agent: Agent) -> None:
    run_id = await agent.start(KNOWN)
    async with agent.runtime.sessions.for_tenant(agent.tenant.id) as session:
        await session.execute(
            text("update runs set attempts = max_attempts, state = 'running',"
                 " lease_until = now() - interval '1 second' where kind = 'agent'")
        )  # fmt: skip
    await agent.work()
    run = await agent.get(run_id)
    assert run["state"] == "failed"
    assert run["error"]["message"] == (
        "The worker could not go on with the run: Its worker died 5 times."
    )
    assert [kind for _, kind in await agent.events(run_id)][-1] == "run_finished"


async def test_a_model_call_survives_a_moment_without_a_connection(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look whether a person has cancelled the run is repeated; the work is not."""
    looked: list[object] = []

    async def refuse(*given: object) -> bool:
        looked.append(given)
        raise NoFreeConnection

    async def search(*_: object) -> ToolResult:
        while not looked:
            await asyncio.sleep(0.01)
        return ToolResult("Found.")

    monkeypatch.setattr(executor, "CANCEL_POLL_SECONDS", 0.01)
    monkeypatch.setattr(queries, "get_cancel_requested", refuse)
    monkeypatch.setattr(RAGSearchTool, "run", search)
    plan = {"steps": [{"step_id": 1, "action": "rag_search", "description": "-", "query": "x"}]}
    run = await agent.ask("x", plan=plan, interactive=False)
    assert looked
    assert run["steps"][0]["output"] == "Found."
