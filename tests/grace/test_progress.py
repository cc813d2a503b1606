"""Progress of a run is stored by one statement, and only by the worker that has the run."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text, update

from memory_api.grace import executor, queries
from memory_api.grace import step as agent_step
from memory_api.grace.leg import KnownRows, Leg
from memory_api.grace.tables import AgentRunRow
from memory_api.runs.tables import RunRow
from tests.grace.conftest import Agent
from tests.grace.test_agent_runs import KNOWN, Counter, counter, step

__all__ = ["counter"]

LOST: dict[str, Any] = {
    "another worker has the lease": update(RunRow).values(lease_owner="another"),
    "another run goes on": update(AgentRunRow).values(active_run_id=None),
    "a person cancels": update(AgentRunRow).values(cancel_requested=True),
    "others stored an event": update(AgentRunRow).values(event_count=99),
}


@pytest.mark.parametrize("change", LOST)
async def test_nothing_is_stored_for_a_worker_that_lost_the_run(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """After the change, the leg reads the rows again, which decides what happens."""
    refused: list[bool] = []
    save = Leg.save

    async def change_first(self: Leg, known: KnownRows, *rest: Any, **more: Any) -> bool:
        if not refused:
            async with self.runtime.sessions.for_tenant(self.run.tenant_id) as session:
                await session.execute(LOST[change])
            saved = await save(self, known, *rest, **more)
            assert self.known is None
            refused.append(not saved)
            async with self.runtime.sessions.for_tenant(self.run.tenant_id) as session:
                stored = await session.scalar(
                    text("select count(*) from agent_steps where result is not null")
                )
                events = await session.scalar(text("select count(*) from agent_events"))
            assert (stored, events) == (0, 1)
            return saved
        return await save(self, known, *rest, **more)

    monkeypatch.setattr(Leg, "save", change_first)
    run_id = await agent.start(KNOWN, interactive=False)
    await agent.work()
    assert refused == [True]
    state = (await agent.get(run_id))["state"]
    expected = {"a person cancels": "cancelled", "others stored an event": "done"}
    assert state == expected.get(change, "running")


async def test_rows_are_read_once(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, counter: Counter
) -> None:
    """A run of one step after the other knows its rows."""
    read: list[str] = []
    load = queries.load_steps

    async def count(*arguments: Any) -> Any:
        read.append("steps")
        return await load(*arguments)

    for module in (executor.queries, agent_step.queries):
        monkeypatch.setattr(module, "load_steps", count)
    run_id = await agent.start(KNOWN, interactive=False)
    await agent.work()
    assert read == []
    assert (await agent.get(run_id))["status"] == "success"
    read.clear()
    steps = [step(1), step(2, "counter", 1), step(3, "counter", 2)]
    run_id = await agent.start("count", plan={"steps": steps}, interactive=False)
    await agent.work()
    assert len(read) == 3, "when it begins, before its first step, and at its end"
    assert [each["state"] for each in (await agent.get(run_id))["steps"]] == ["success"] * 3
