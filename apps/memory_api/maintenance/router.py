"""Maintenance over HTTP: list the tasks, start one."""

from __future__ import annotations

from fastapi import APIRouter, Response

from memory_api.api.deps import Admin, Reader, RuntimeDep, Session, require_whole_tenant
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.core.schemas import body_example
from memory_api.maintenance.schedule import list_schedules, start_task
from memory_api.maintenance.schemas import (
    MaintenanceSchedulePage,
    MaintenanceTaskName,
    StartMaintenanceRequest,
)
from memory_api.runs.router import run_response
from memory_api.runs.schemas import Run

router = APIRouter(prefix="/api/v1/maintenance", tags=["maintenance"], route_class=ApiRoute)


@router.get("", summary="List maintenance tasks")
async def list_maintenance_tasks(
    runtime: RuntimeDep, session: Session, caller: Reader
) -> MaintenanceSchedulePage:
    """Lists the maintenance tasks with their period and latest start."""
    return MaintenanceSchedulePage(items=await list_schedules(runtime, session))


@router.post(
    "/{task}",
    status_code=202,
    summary="Start a maintenance task",
    responses=problems(409, "queue_full"),
    openapi_extra=body_example({"apply": False}),
)
async def start_maintenance(
    task: MaintenanceTaskName,
    runtime: RuntimeDep,
    session: Session,
    caller: Admin,
    response: Response,
    body: StartMaintenanceRequest | None = None,
) -> Run:
    """Queues a run of the task now, also between its periods. The result is in the run.

    `dreaming` reads the recent episodes, or the chosen traces and sessions: at least 2 and at most
    100 closed traces. Answers 409 for it with `REFLECTIVE_MEMORY_MODE=lite`.
    """
    require_whole_tenant(caller)
    await runtime.queue.admit(session)
    run = await start_task(runtime, session, task, body or StartMaintenanceRequest())
    response.headers["Location"] = f"/api/v1/runs/{run.id}"
    return run_response(run)
