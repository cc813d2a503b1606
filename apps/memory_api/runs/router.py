"""Runs over HTTP: list, read, retry."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BeforeValidator

from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    RuntimeDep,
    Session,
    Writer,
    project_filter,
)
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.core.errors import NotFound
from memory_api.core.pagination import to_page
from memory_api.core.schemas import split_commas
from memory_api.runs import lifecycle, queries
from memory_api.runs.chain import enqueue_runs, next_run_id
from memory_api.runs.schemas import Run, RunPage, RunState
from memory_api.runs.tables import RunRow

router = APIRouter(prefix="/api/v1/runs", tags=["runs"], route_class=ApiRoute)


def run_response(row: RunRow) -> Run:
    run = Run.model_validate(row, from_attributes=True)
    return run.model_copy(update={"next_run_id": next_run_id(row)})


StateQuery = Annotated[
    list[RunState] | None,
    BeforeValidator(split_commas),
    Query(description="States to include; repeat the parameter for several. Default: all."),
]


@router.get("", summary="List runs", responses=problems(422))
async def list_runs(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    state: StateQuery = None,
    kind: Annotated[
        str | None, Query(max_length=64, description="Kind of work, such as `reflect`.")
    ] = None,
    trace_id: Annotated[UUID | None, Query(description="Runs about this trace.")] = None,
    parent_id: Annotated[
        UUID | None, Query(description="The first run of a chain: lists the runs that follow it.")
    ] = None,
    limit: Limit = 50,
) -> RunPage:
    """Lists runs, newest first.

    `state=dead` lists the runs that failed on every attempt, with the cause in `error`.
    """
    parent = await queries.get_run(session, parent_id) if parent_id else None
    if parent_id and parent is None:
        return RunPage(items=[])
    query = queries.select_runs(
        session,
        project_id=project_filter(caller, project_id),
        states=state or (),
        kind=kind,
        trace_id=trace_id,
        parent=parent,
    )
    rows = await queries.list_runs(session, query, cursor=cursor, limit=limit)
    return to_page(RunPage, rows, limit, run_response)


@router.get("/{run_id}", summary="Get a run", responses=problems(404))
async def get_run(run_id: UUID, session: Session, caller: Reader) -> Run:
    """Returns a run with its state, result and error."""
    run = await queries.get_run(session, run_id)
    if run is None or caller.project_id not in (None, run.project_id):
        raise NotFound("Run not found.")
    return run_response(run)


@router.post(
    "/{run_id}/retry",
    status_code=202,
    summary="Retry a run",
    responses=problems(404, 409, "queue_full"),
)
async def retry_run(run_id: UUID, runtime: RuntimeDep, session: Session, caller: Writer) -> Run:
    """Queues a dead or failed run again, with all its attempts.

    In a chain, the earlier steps are not repeated; the later steps follow as usual. Answers 409 in
    any other state.
    """
    run = await queries.get_run(session, run_id)
    if run is None or caller.project_id not in (None, run.project_id):
        raise NotFound("Run not found.")
    run = await lifecycle.retry_run(session, run_id)
    assert run is not None
    await enqueue_runs(runtime.queue, session, run)
    return run_response(run)
