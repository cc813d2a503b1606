"""Traces: the list, and one trace with its events, what was learned from it, and its attempts."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from memory_api.api.deps import Reader, RuntimeDep, Session
from memory_api.console.forms import require_one_of
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.paging import PlaceQuery
from memory_api.console.queries import count_rows
from memory_api.console.rendering import render_page
from memory_api.console.runs.kinds import KINDS
from memory_api.console.runs.results import describe_reason
from memory_api.console.traces.event_lines import compare_attempts, count_tokens, event_lines
from memory_api.console.traces.lessons import load_learned
from memory_api.console.traces.queries import ADVICE, count_newest, had_advice, load_advice
from memory_api.core.pagination import to_page
from memory_api.playbooks.queries import count_reviews
from memory_api.runs.router import list_runs
from memory_api.traces import queries
from memory_api.traces.router import FIRST_EVENTS, get_trace, list_trace_events, list_traces
from memory_api.traces.schemas import OutcomeType, TracePage, TraceWithEvents
from memory_api.traces.tables import TraceRow

router = APIRouter(prefix="/console/traces", route_class=ConsoleRoute, include_in_schema=False)

PAGE_SIZE = 50
MAX_ATTEMPTS = 4
"""Attempts that are shown side by side."""
Name = Annotated[str, Query(max_length=128)]


@router.get("")
async def show_traces(
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    place: PlaceQuery,
    words: Name = "",
    outcome: str = "",
    playbook: Name = "",
    advice: str = "",
    task_key: Name = "",
) -> Response:
    require_one_of("outcome", outcome, ("", *OutcomeType))
    require_one_of("advice", advice, ("", *ADVICE))
    columns = {"outcome": outcome, "task_key": task_key, "playbook": playbook}
    wanted = {name: value or None for name, value in columns.items()}
    words = words.strip()
    query = queries.select_traces(session, visit.project, wanted, had_advice(advice))
    counts = await count_newest(session, query) if place.is_first and not words else None
    row = TraceRow
    if words:
        query, row = queries.search_newest_traces(query, words)
    rows = await queries.list_traces(session, query, row=row, cursor=place.cursor, limit=PAGE_SIZE)
    page = to_page(TracePage, rows, PAGE_SIZE)
    return render_page(
        visit,
        "traces/list.html",
        page=page,
        advice=await load_advice(session, [trace.id for trace in page.items]),
        counts=counts,
        playbooks=[row.name for row in await count_reviews(session, visit.project)],
        filters={"words": words, "advice": advice, **columns},
        searched=queries.SEARCHED_TRACES if words else 0,
        outcomes=[outcome.value for outcome in OutcomeType],
        paging=place.followed_by(page.next_cursor, await count_rows(session, query), PAGE_SIZE),
    )


@router.get("/{trace_id}")
async def show_trace(
    trace_id: UUID,
    visit: CurrentVisit,
    session: Session,
    runtime: RuntimeDep,
    caller: Reader,
    place: PlaceQuery,
) -> Response:
    trace = await get_trace(trace_id, session, caller)
    events, next_cursor = trace.events, trace.next_cursor
    if place.cursor is not None:
        later = await list_trace_events(trace_id, session, caller, place.cursor, limit=FIRST_EVENTS)
        events, next_cursor = later.items, later.next_cursor
    found = await load_advice(session, [trace_id])
    runs = await list_runs(session, caller, None, trace.project_id, trace_id=trace_id)
    learned = await load_learned(session, trace, runs.items)
    attempts = await _load_attempts(session, caller, trace.project_id, trace.task_key)
    return render_page(
        visit,
        "traces/trace.html",
        trace=trace,
        lines=event_lines(events, trace.id, attempts),
        tokens=count_tokens(trace),
        difference=compare_attempts(trace, attempts),
        learned=learned,
        is_enabled=runtime.settings.reflective_memory_enabled,
        advice=found.get(trace_id),
        reason=describe_reason(learned.evaluation, visit.translation),
        names={kind: text for kind, (text, _) in KINDS.items()},
        paging=place.followed_by(next_cursor, trace.event_count, FIRST_EVENTS),
        runs=runs.items[::-1],
        attempts=[(each, event_lines(each.events, each.id, attempts)) for each in attempts],
    )


async def _load_attempts(
    session: Session, caller: Reader, project: str, task_key: str | None
) -> list[TraceWithEvents]:
    """The latest attempts at a task, oldest first, each with its events."""
    if task_key is None:
        return []
    found = await list_traces(session, caller, None, project, task_key=task_key, limit=MAX_ATTEMPTS)
    if len(found.items) < 2:
        return []
    return [await get_trace(item.id, session, caller) for item in reversed(found.items)]
