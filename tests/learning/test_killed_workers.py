"""Workers that are killed in the middle of each step of learning, in the very transaction that
would have finished it: what they had written is gone, and another does that step once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import select

from memory_api.curation.tables import CuratedLessonRow
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import InboxLessonRow
from memory_api.runs.tables import RunRow
from tests.learning.test_learning import FAILED

TELLS = {"evaluate": "verdict", "reflect": "reflection_id", "curate": "deltas", "apply": "changes"}
"""What stands in the result of each step."""

DIES = """
import os, signal
from memory_api.runs import lifecycle
finish = lifecycle.finish_run
async def die(session, run, result):
    await finish(session, run, result)
    if {tells!r} in result.data:
        await session.flush()
        os.kill(os.getpid(), signal.SIGKILL)
lifecycle.finish_run = die
"""


async def test_worker_killed_at_every_step_counts_once(
    runtime: Any, api: Any, tenant: Any, start_worker: Any, wait_for_run: Any
) -> None:
    answer = await api.post("/api/v1/traces", json=FAILED)
    trace_id = answer.json()["trace_id"]
    for tells in TELLS.values():
        victim = await start_worker(lease=0.6, patch=DIES.format(tells=tells))
        assert await victim.wait() == -9
    survivor = await start_worker(lease=0.6)
    run_id = answer.json()["run_id"]
    kinds: list[str] = []
    while run_id is not None:
        run = await wait_for_run(run_id)
        assert run.state == "done"
        assert run.attempt_count == 2
        kinds.append(run.kind)
        run_id = run.result.get("next_run_id")
    assert await survivor.stop() == 0
    assert kinds == list(TELLS)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        made = await session.scalars(
            select(RunRow.kind).where(RunRow.tenant_id == tenant.id, RunRow.trace_id == trace_id)
        )
        assert sorted(made) == sorted(TELLS), "no step was queued twice"
        rows = await session.scalars(select(MemoryRow.kind).where(MemoryRow.tenant_id == tenant.id))
        assert Counter(rows) == {"episode": 1, "reflection": 1, "strategy": 1, "bullet": 1}


async def test_inbox_survives_workers_killed_while_they_curate(
    runtime: Any, api: Any, tenant: Any, start_worker: Any, wait_for_run: Any
) -> None:
    """No lesson is lost, and none counts twice."""
    tools = ("fetch", "render", "upload")
    run_ids: list[str] = []
    for tool in tools:
        events = [event | {"tool_name": tool} for event in FAILED["events"]]
        changes = {"events": events, "task_description": f"Bring what {tool} gives"}
        sent = await api.post("/api/v1/traces", json=FAILED | changes)
        run_ids.append(sent.json()["run_id"])
    for tells in ("deltas", "changes"):
        victim = await start_worker(lease=0.6, patch=DIES.format(tells=tells))
        assert await victim.wait() == -9
    survivor = await start_worker(lease=0.6)
    applied: set[str] = set()
    for run_id in run_ids:
        while run_id is not None:
            run = await wait_for_run(run_id)
            assert run.state == "done"
            applied |= {str(run.id)} if run.kind == "apply" else set()
            run_id = run.result.get("next_run_id")
    assert await survivor.stop() == 0
    async with runtime.sessions.for_tenant(tenant.id) as session:
        waiting = await session.scalars(
            select(InboxLessonRow.id).where(InboxLessonRow.tenant_id == tenant.id)
        )
        assert waiting.all() == []
        rows = (
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        ).all()
        strategies = [row for row in rows if row.kind == "strategy"]
        bullets = [row for row in rows if row.kind == "bullet"]
        decided = await session.scalars(
            select(CuratedLessonRow.memory_id).where(CuratedLessonRow.tenant_id == tenant.id)
        )
        assert sorted(decided) == sorted(row.id for row in strategies), "each decided once"
        observed = sum(row.observation_count for row in bullets)
        assert observed == sum(row.observation_count for row in strategies) == len(tools)
