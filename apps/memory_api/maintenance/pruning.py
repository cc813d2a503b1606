"""The task `pruning`: archives memories that matter little and are not used.

What is left of the importance of a memory is its strength. It is 1 for PROTECTED_DAYS after the
last use or change, then decays by HANSEI_MEMORY_DECAY_RATE per day, after STALE_DAYS twice as fast,
to MIN_STRENGTH (source: BACKGROUND_WORKERS.md of RAE, made continuous). It is computed from these
times when pruning reads it: no task writes it, and a use restores it.

It reports before it acts: a run lists the memories below the limit in its result. The next run a
week later, or `apply: true`, archives those of the latest report that are still below it. An
archived memory can be made active again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.maintenance.queries import lock_task
from memory_api.memories.index.writer import unindex_memories
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

PRUNING = "pruning"
PRUNABLE_MEMORIES = load_statement("maintenance/maintenance.sql", "prunable_memories")
PROTECTED_DAYS = 7
STALE_DAYS = 30
MIN_STRENGTH = 0.01
MIN_AGE_DAYS = 30
"""Time without use or change before a memory can be pruned, in days."""
MAX_REPORTED = 1_000
MEMORIES_PER_BATCH = 100


async def prune_memories(runtime: Runtime, run: RunRow) -> StepResult:
    """Archives what the previous report lists, if the run was scheduled or has `apply`, and reports
    what is below the limit now.
    """
    tenant = run.tenant_id
    async with runtime.sessions.for_tenant(tenant) as session:
        task = await lock_task(session, PRUNING)
        listed = [UUID(memory_id) for memory_id in task.state.get("listed", ())]
    archived: list[str] = []
    is_scheduled = task.run_id == run.id
    if is_scheduled or run.input.get("apply"):
        for start in range(0, len(listed), MEMORIES_PER_BATCH):
            async with runtime.sessions.for_tenant(tenant) as session:
                batch = listed[start : start + MEMORIES_PER_BATCH]
                archived += await _archive(runtime, session, run, batch)
    async with runtime.sessions.for_tenant(tenant) as session:
        report = await _find_prunable(runtime, session)
        task = await lock_task(session, PRUNING)
        task.state = {"listed": [item["id"] for item in report], "run_id": str(run.id)}
    return StepResult(data={"archived": archived, "report": report})


async def _archive(
    runtime: Runtime, session: AsyncSession, run: RunRow, memory_ids: Sequence[UUID]
) -> list[str]:
    """Archives those of the memories that are still below the limit. Returns their IDs."""
    rows = await session.scalars(
        select(MemoryRow)
        .where(MemoryRow.tenant_id == current_tenant_id(session), MemoryRow.id.in_(memory_ids))
        .order_by(MemoryRow.id)
        .with_for_update()
    )
    locked = {str(row.id): row for row in rows}
    found = await _find_prunable(runtime, session, memory_ids)
    memories = [locked[item["id"]] for item in found if item["id"] in locked]
    await unindex_memories(session, memories)
    for memory in memories:
        memory.status = MemoryStatus.ARCHIVED
        memory.change_reason = "Pruned: of little importance and not used."
        memory.change_actor, memory.change_run_id = "maintenance", run.id
    return [str(memory.id) for memory in memories]


async def _find_prunable(
    runtime: Runtime, session: AsyncSession, among: Sequence[UUID] | None = None
) -> list[dict[str, Any]]:
    rows = await fetch_rows(
        session,
        PRUNABLE_MEMORIES,
        {
            "tenant": current_tenant_id(session),
            "ids": list(among) if among is not None else None,
            "below": runtime.settings.prune_below,
            "min_age_days": MIN_AGE_DAYS,
            "rate": runtime.settings.memory_decay_rate,
            "protected_days": PROTECTED_DAYS,
            "stale_days": STALE_DAYS,
            "floor": MIN_STRENGTH,
            "limit": MAX_REPORTED,
        },
    )
    return [
        {
            "id": str(row.id),
            "kind": row.kind,
            "project_id": row.project_id,
            "excerpt": row.excerpt,
            "importance": round(row.importance, 3),
            "strength": round(row.strength, 3),
            "used_at": row.used_at.isoformat(),
        }
        for row in rows
    ]
