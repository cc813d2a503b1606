"""The task `decay`: the strength of memories decreases while nobody uses them.

strength ← max(FLOOR, strength · exp(−rate · (days + stale_days))). `days` counts the time since the
last run in which the memory was not protected, that is, more than 7 days after its last use or
change; `stale_days` counts the part of it after 30 days, which decays twice as fast. So two runs
over the same time decay as much as one (source: BACKGROUND_WORKERS.md of RAE, made continuous).
Pinned memories and bullets with verdicts do not decay.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.core.resources import load_sql
from memory_api.maintenance.queries import lock_task
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

DECAY = "decay"
DECAY_BATCH = load_sql("maintenance/maintenance.sql", "decay_batch")
FLOOR = 0.01
PROTECTED_DAYS = 7
STALE_DAYS = 30
MIN_INTERVAL = timedelta(hours=1)
"""A run that follows an earlier one sooner changes nothing."""
MEMORIES_PER_BATCH = 1_000
NO_ID = UUID(int=0)


async def decay_strengths(runtime: Runtime, run: RunRow) -> StepResult:
    """Decays the memories of the tenant, batch by batch. The position is stored with each batch, so
    a run that is killed and repeated decays each memory once.
    """
    decayed = 0
    while True:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            task = await lock_task(session, DECAY)
            state = await _begin(session, task.state)
            if state is None:
                return StepResult(data={"memories_decayed": decayed})
            row = (await session.execute(DECAY_BATCH, _parameters(runtime, run, state))).one()
            decayed += row.changed
            if row.seen < MEMORIES_PER_BATCH:
                task.state = {"until": state["until"]}
                return StepResult(data={"memories_decayed": decayed})
            task.state = state | {"after": str(row.last_id)}


async def _begin(session: AsyncSession, state: dict[str, Any]) -> dict[str, Any] | None:
    """The state of an unfinished round, or of a new one; None if the last one was just now."""
    if "since" in state:
        return state
    now = await transaction_time(session)
    until: str | None = state.get("until")
    if until is not None and now - datetime.fromisoformat(until) < MIN_INTERVAL:
        return None
    return {"since": until, "until": now.isoformat(), "after": str(NO_ID)}


def _parameters(runtime: Runtime, run: RunRow, state: dict[str, Any]) -> dict[str, Any]:
    since: str | None = state["since"]
    return {
        "tenant": run.tenant_id,
        "after": UUID(state["after"]),
        "since": datetime.fromisoformat(since) if since else None,
        "until": datetime.fromisoformat(state["until"]),
        "rate": runtime.settings.memory_decay_rate,
        "floor": FLOOR,
        "protected_days": PROTECTED_DAYS,
        "stale_days": STALE_DAYS,
        "batch_size": MEMORIES_PER_BATCH,
    }
