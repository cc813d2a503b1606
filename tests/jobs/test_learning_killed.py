"""Workers that are killed in the middle of each step of learning, in the very transaction that
would have finished it: what they had written is gone, and another does that step once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import select

from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.tables import Memory
from tests.workers.test_learn import FAILED

TELLS = {"evaluate": "verdict", "reflect": "reflection_id", "curate": "deltas", "merge": "changes"}
"""What stands in the result of each step."""

DIES = """
import os, signal
from apps.memory_api.jobs import runs
finish = runs.finish
async def die(session, run, result, **more):
    await finish(session, run, result, **more)
    if {tells!r} in result:
        await session.flush()
        os.kill(os.getpid(), signal.SIGKILL)
runs.finish = die
"""


async def test_killed_at_every_step_it_counts_once(
    runtime: Any, api: Any, tenant: Any, start_worker: Any, settled: Any
) -> None:
    answer = await api.post("/api/v1/traces", json=FAILED)
    trace_id = answer.json()["trace_id"]
    for tells in TELLS.values():
        victim = await start_worker(lease=0.6, patch=DIES.format(tells=tells))
        await victim.process.communicate()
        assert victim.process.returncode == -9
    survivor = await start_worker(lease=0.6)
    run_id = answer.json()["run_id"]
    kinds: list[str] = []
    while run_id is not None:
        run = await settled(run_id)
        assert run.state == "done"
        assert run.attempts == 2
        kinds.append(run.kind)
        run_id = run.result.get("next_run_id")
    assert await survivor.leave() == 0
    assert kinds == list(TELLS)
    async with runtime.sessions.tenant(tenant.id) as session:
        made = await session.scalars(
            select(Run.kind).where(Run.tenant_id == tenant.id, Run.trace_id == trace_id)
        )
        assert sorted(made) == sorted(TELLS), "no step was queued twice"
        rows = await session.scalars(select(Memory.kind).where(Memory.tenant_id == tenant.id))
        assert Counter(rows) == {"episode": 1, "reflection": 1, "strategy": 1, "bullet": 1}
