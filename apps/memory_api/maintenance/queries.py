"""Statements of scheduled and commanded maintenance work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.maintenance.tables import MaintenanceTaskRow
from memory_api.run_queue.tables import UpkeepScheduleRow
from memory_api.runs.lifecycle import NOW, RunBusy
from memory_api.runs.tables import RunRow

ACTIVE_RUN = "active_run_id"
"""In the state of a task: the run that executes it."""
NEVER_STARTED = datetime(2000, 1, 1, tzinfo=UTC)
"""`started_at` of a task that was only started on demand."""


async def get_open_run(session: AsyncSession, kind: str) -> RunRow | None:
    """The latest queued or running run of a kind. Locks its row."""
    return await session.scalar(
        select(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.kind == kind,
            RunRow.state.in_(("queued", "running")),
        )
        .order_by(RunRow.created_at.desc(), RunRow.id.desc())
        .limit(1)
        .with_for_update()
    )


async def is_running(session: AsyncSession, run_id: UUID) -> bool:
    """Whether a process holds this run."""
    found = await session.scalar(
        select(RunRow.id).where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.id == run_id,
            RunRow.state == "running",
            RunRow.lease_until > NOW,
        )
    )
    return found is not None


async def update_progress(session: AsyncSession, run: RunRow, progress: dict[str, Any]) -> bool:
    """Stores the progress of a run. False if the caller has lost the run's lease."""
    updated_id = await session.scalar(
        update(RunRow)
        .where(
            RunRow.tenant_id == current_tenant_id(session),
            RunRow.id == run.id,
            RunRow.lease_owner == run.lease_owner,
            RunRow.state == "running",
        )
        .values(result=progress)
        .returning(RunRow.id)
    )
    return updated_id is not None


async def load_task_starts(session: AsyncSession) -> dict[str, datetime]:
    """Task → its latest start on the schedule, for tasks that have started."""
    rows = await session.scalars(
        select(MaintenanceTaskRow).where(MaintenanceTaskRow.tenant_id == current_tenant_id(session))
    )
    return {row.task: row.started_at for row in rows if row.started_at > NEVER_STARTED}


async def get_upkeep_time(session: AsyncSession) -> datetime | None:
    """When the tenant's upkeep is due. None if the tenant was never active."""
    return await session.scalar(
        select(UpkeepScheduleRow.due_at).where(UpkeepScheduleRow.lane == current_tenant_id(session))
    )


async def lock_task(session: AsyncSession, task: str) -> MaintenanceTaskRow:
    """The row of a task of the session's tenant, locked. Creates it for a task that never started
    on the schedule.
    """
    tenant = current_tenant_id(session)
    await session.execute(
        insert(MaintenanceTaskRow)
        .values(tenant_id=tenant, task=task, started_at=NEVER_STARTED)
        .on_conflict_do_nothing()
    )
    row = await session.scalar(
        select(MaintenanceTaskRow)
        .where(MaintenanceTaskRow.tenant_id == tenant, MaintenanceTaskRow.task == task)
        .with_for_update()
    )
    assert row is not None, "just created, and never removed"
    return row


class TaskBusy(RunBusy):
    """Another run executes this task for the tenant."""


async def claim_task(session: AsyncSession, task: str, run: RunRow) -> None:
    """Let `run` execute a task alone. Raises `TaskBusy` while another run of the tenant does."""
    row = await lock_task(session, task)
    active: str | None = row.state.get(ACTIVE_RUN)
    if active not in (None, str(run.id)) and await is_running(session, UUID(active)):
        raise TaskBusy(f"Run {active} executes `{task}` for this tenant.")
    row.state = row.state | {ACTIVE_RUN: str(run.id)}
