"""Runs: the list, which follows new ones; one run with its chain, the cause of failure, retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from markupsafe import Markup

from memory_api.api.deps import Reader, RuntimeDep, Session, Writer
from memory_api.console.forms import require_one_of
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import (
    count_questions,
    count_rows,
    load_questions,
    load_tasks,
    sum_work,
)
from memory_api.console.rendering import render_page
from memory_api.console.runs.kinds import GROUPS, KINDS
from memory_api.console.runs.results import (
    JudgedTrace,
    count_traces,
    describe_reason,
    describe_result,
)
from memory_api.console.visit import Visit
from memory_api.core.pagination import to_page
from memory_api.grace.corrections import CORRECTION
from memory_api.grace.interventions import AGENT
from memory_api.grace.tables import AgentRunRow
from memory_api.runs import queries
from memory_api.runs.router import get_run, list_runs, retry_run, run_response
from memory_api.runs.schemas import Run, RunPage

router = APIRouter(prefix="/console/runs", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
STATES = ("queued", "running", "done", "failed", "dead")
LIVE_STATES = ("queued", "running")
RETRIABLE_STATES = ("failed", "dead")
QUESTIONS = (AGENT, CORRECTION)
"""Kinds of runs that work on a question."""


@router.get("")
async def show_runs(
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    place: PlaceQuery,
    state: str = "",
    kind: str = "",
) -> Response:
    require_one_of("state", state, ("", *STATES))
    require_one_of("kind", kind, (*GROUPS, *KINDS))
    query = queries.select_runs(
        session,
        project_id=visit.project,
        states=(state,) if state else (),
        kinds=_kinds(kind, state),
        has_evaluations=bool(kind),
    )
    rows = await queries.list_runs(session, query, cursor=place.cursor, limit=PAGE_SIZE)
    page = to_page(RunPage, rows, PAGE_SIZE, run_response)
    traces = await _load_traces(session, page.items)
    questions = await _load_questions(session, page.items)
    return render_page(
        visit,
        "runs/rows.html" if visit.is_partial else "runs/list.html",
        page=page,
        work=await sum_work(session, visit.project),
        waiting_count=(await count_questions(session, visit.project)).waiting,
        tasks=traces,
        questions=questions,
        earlier_legs=_earlier_legs(page.items, questions),
        lessons={run.id: count_traces(run) for run in page.items},
        newest_change=next(filter(_has_changed, page.items), None) if place.is_first else None,
        results=_describe(visit, page.items, traces),
        now=datetime.now(UTC),
        states=STATES,
        groups=[(name, text) for name, (text, _) in GROUPS.items()],
        names={name: text for name, (text, _) in KINDS.items()},
        filters={"state": state, "kind": kind},
        paging=place.followed_by(page.next_cursor, await count_rows(session, query), PAGE_SIZE),
    )


def _has_changed(run: Run) -> bool:
    """Whether the run changed bullets of a playbook."""
    result: Any = run.result or {}
    return run.kind == "apply" and bool(result.get("keys"))


def _kinds(kind: str, state: str) -> Sequence[str]:
    """The kinds of runs to list. What failed is listed of every kind."""
    if not kind and state in RETRIABLE_STATES:
        return ()
    return GROUPS[kind][1] if kind in GROUPS else (kind,)


async def _load_traces(session: Session, runs: Sequence[Run]) -> dict[UUID, Any]:
    found = {run.trace_id for run in runs if run.trace_id}
    return await load_tasks(session, found, [run.id for run in runs]) if found else {}


async def _load_questions(session: Session, runs: Sequence[Run]) -> dict[UUID, AgentRunRow]:
    """Run ID → the question that it works on. A run that is done may leave it waiting."""
    asked = {run.id: UUID(run.input["agent_run_id"]) for run in runs if run.kind in QUESTIONS}
    found = await load_questions(session, set(asked.values())) if asked else {}
    return {run_id: found[question] for run_id, question in asked.items() if question in found}


def _earlier_legs(runs: Sequence[Run], questions: Mapping[UUID, AgentRunRow]) -> set[UUID]:
    """The runs on questions, newest first, after which another one went on: each asked a person."""
    earlier: set[UUID] = set()
    seen: set[UUID] = set()
    for run in runs:
        if run.kind == AGENT and run.id in questions:
            question = questions[run.id].id
            if question in seen:
                earlier.add(run.id)
            seen.add(question)
    return earlier


def _describe(visit: Visit, runs: Sequence[Run], traces: Mapping[UUID, Any]) -> dict[UUID, Markup]:
    """Run ID → its result in one sentence."""
    results: dict[UUID, Markup] = {}
    for run in runs:
        row = traces.get(run.trace_id) if run.trace_id else None
        outcome = (row.effective_outcome or row.outcome) if row else None
        trace = JudgedTrace(outcome, row.judged_count if row else 0)
        results[run.id] = describe_result(run, trace, visit)
    return results


@router.get("/{run_id}")
async def show_run(
    run_id: UUID, visit: CurrentVisit, session: Session, caller: Reader, done: str = ""
) -> Response:
    run = await get_run(run_id, session, caller)
    chain = await list_runs(
        session, caller, None, run.project_id, parent_id=run.parent_id or run.id
    )
    first = run if run.parent_id is None else await get_run(run.parent_id, session, caller)
    steps = [first, *(item for item in chain.items[::-1] if item.id != first.id)]
    traces = await _load_traces(session, steps)
    name, about = KINDS.get(run.kind, (run.kind, run.kind))
    return render_page(
        visit,
        "runs/live.html" if visit.is_partial else "runs/run.html",
        run=run,
        name=name,
        about=about,
        names={kind: text for kind, (text, _) in KINDS.items()},
        results=_describe(visit, steps, traces),
        reason=describe_reason(run.result, visit.translation),
        task=traces.get(run.trace_id) if run.trace_id else None,
        chain=steps,
        question=(await _load_questions(session, [run])).get(run.id),
        lessons={step.id: count_traces(step) for step in steps},
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
