"""Starts maintenance tasks on demand, and shows when they start by themselves."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import transaction_time
from memory_api.core.errors import InvalidRequest
from memory_api.maintenance.dreaming.context import SESSION_IDS, TRACE_IDS, choose_traces
from memory_api.maintenance.queries import get_upkeep_time, load_task_starts
from memory_api.maintenance.schemas import (
    MaintenanceSchedule,
    MaintenanceTaskName,
    StartMaintenanceRequest,
)
from memory_api.maintenance.tasks import PERIODS, TASKS, require_allowed, scheduled_tasks
from memory_api.maintenance.upkeep import UPKEEP
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime


async def start_task(
    runtime: Runtime,
    session: AsyncSession,
    name: MaintenanceTaskName,
    request: StartMaintenanceRequest,
) -> RunRow:
    """Enqueues a run of a task, whatever its schedule says. Raises `Conflict` if the settings do
    not allow the task, and `InvalidRequest` for traces that it cannot read.
    """
    options: dict[str, Any] = request.model_dump(mode="json", exclude_defaults=True)
    if request.trace_ids or request.session_ids:
        if name is not MaintenanceTaskName.DREAMING:
            field = TRACE_IDS if request.trace_ids else SESSION_IDS
            raise InvalidRequest(f"Only `dreaming` takes `{field}`.", field=field)
        chosen = await choose_traces(session, request.trace_ids, request.session_ids)
        options[TRACE_IDS] = [str(trace_id) for trace_id in chosen]
    if name is MaintenanceTaskName.UPKEEP:
        run = lifecycle.new_run(session, UPKEEP, project_id="default")
    else:
        task = TASKS[name]
        require_allowed(task, runtime.settings)
        run = task.new_run(session, options=options)
    await enqueue_runs(runtime.queue, session, run)
    await session.refresh(run)
    return run


async def list_schedules(runtime: Runtime, session: AsyncSession) -> list[MaintenanceSchedule]:
    """All tasks of the session's tenant."""
    now = await transaction_time(session)
    started = await load_task_starts(session)
    schedules = [
        MaintenanceSchedule(
            task=MaintenanceTaskName.UPKEEP,
            period="activity",
            scheduled=True,
            started_at=None,
            next_at=await get_upkeep_time(session),
        )
    ]
    scheduled = {task.name for task in scheduled_tasks(runtime.settings)}
    for task in TASKS.values():
        start = started.get(task.name)
        period_start = task.period_start(now)
        next_at = (
            now if start is None or start < period_start else period_start + PERIODS[task.period]
        )
        schedules.append(
            MaintenanceSchedule(
                task=MaintenanceTaskName(task.name),
                period=task.period,
                scheduled=task.name in scheduled,
                started_at=start,
                next_at=next_at if task.name in scheduled else None,
            )
        )
    return schedules
