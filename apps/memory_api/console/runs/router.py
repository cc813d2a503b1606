"""Runs: the list, which follows new ones; one run with its chain, the cause of failure, retry."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import CursorQuery, Reader, RuntimeDep, Session, Writer
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.queries import load_tasks, sum_work
from memory_api.console.rendering import render_page
from memory_api.console.runs.results import describe_result
from memory_api.console.translations import N_
from memory_api.core.pagination import to_page
from memory_api.runs import queries
from memory_api.runs.router import get_run, list_runs, retry_run, run_response
from memory_api.runs.schemas import RunPage

router = APIRouter(prefix="/console/runs", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
STATES = ("queued", "running", "done", "failed", "dead")
LIVE_STATES = ("queued", "running")
RETRIABLE_STATES = ("failed", "dead")
HOUSEKEEPING = ("upkeep", "maintenance", "cleanup")
"""Kinds that the list shows only if they are chosen."""
KINDS = {
    "evaluate": N_("Decides how a run of an agent ended, and judges the bullets it used"),
    "reflect": N_("Finds out what happened in a trace and why, and writes lessons"),
    "curate": N_("Decides which lessons change the playbook"),
    "apply": N_("Writes the changes as a version of the playbook"),
    "trajectory": N_("Reflects on an answer with its reasoning steps"),
    "transcript": N_("Reflects on a chat session"),
    "workflow": N_("Answers a question and reflects on the answer"),
    "chunk": N_("Splits a document into parts that searches find"),
    "agent": N_("Answers a question with sources"),
    "agent_correction": N_("Learns from an answer that a person called wrong"),
    "webhook": N_("Sends an event to a webhook"),
    "budget_alert": N_("Reports that a budget is nearly spent"),
    "cleanup": N_("Merges and removes bullets of a playbook"),
    "reembed": N_("Computes vectors with a new embedding model"),
    "upkeep": N_("Works through what is due for the tenant"),
    "maintenance": N_("Deletes old rows"),
    "erasure": N_("Removes personal data permanently"),
}
"""Kinds of runs, and what each of them does."""


@router.get("")
async def show_runs(
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    state: str = "",
    kind: str = "",
) -> Response:
    rows = await queries.list_runs(
        session,
        project_id=visit.project,
        states=(state,) if state in STATES else (),
        kind=kind[:64] or None,
        without=() if kind else HOUSEKEEPING,
        cursor=cursor,
        limit=PAGE_SIZE,
    )
    page = to_page(RunPage, rows, PAGE_SIZE, run_response)
    traces = {run.trace_id for run in page.items if run.trace_id}
    return render_page(
        visit,
        "runs/rows.html" if visit.is_partial else "runs/list.html",
        page=page,
        work=await sum_work(session, visit.project),
        tasks=await load_tasks(session, traces) if traces else {},
        results={run.id: describe_result(run, visit.translation) for run in page.items},
        now=datetime.now(UTC),
        states=STATES,
        kinds=[(name, name) for name in KINDS],
        filters={"state": state, "kind": kind},
        is_first=cursor is None,
    )


@router.get("/{run_id}")
async def show_run(
    run_id: UUID, visit: CurrentVisit, session: Session, caller: Reader, done: str = ""
) -> Response:
    run = await get_run(run_id, session, caller)
    chain = await list_runs(
        session, caller, None, run.project_id, parent_id=run.parent_id or run.id
    )
    first = run if run.parent_id is None else await get_run(run.parent_id, session, caller)
    return render_page(
        visit,
        "runs/live.html" if visit.is_partial else "runs/run.html",
        run=run,
        about=KINDS.get(run.kind, run.kind),
        result=describe_result(run, visit.translation),
        chain=[first, *(item for item in chain.items[::-1] if item.id != first.id)],
        is_live=run.state in LIVE_STATES,
        can_retry=run.state in RETRIABLE_STATES,
        done=done,
    )


@router.post("/{run_id}/retry")
async def retry(
    run_id: UUID, visit: CurrentVisit, runtime: RuntimeDep, session: Session, caller: Writer
) -> Response:
    await retry_run(run_id, runtime, session, caller)
    return RedirectResponse(visit.link("runs", str(run_id), done="retried"), 303)
