"""Traces over HTTP: one, many as NDJSON, or streamed as they happen."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers
from starlette.routing import Match
from starlette.types import Scope

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.core.body import media_type
from apps.memory_api.core.cursor import page
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page
from apps.memory_api.deps import (
    Cleaned,
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    ReservedDep,
    RuntimeDep,
    Session,
    Writer,
)
from apps.memory_api.traces import examples
from apps.memory_api.traces.accept import Intake
from apps.memory_api.traces.body import take_body
from apps.memory_api.traces.queries import list_events, list_traces
from apps.memory_api.traces.schemas import (
    BatchAnswer,
    CloseIn,
    EventsIn,
    EventView,
    OutcomeIn,
    OutcomeType,
    Reflect,
    TraceAccepted,
    TraceDetail,
    TraceGrown,
    TraceIn,
    TraceView,
)
from apps.memory_api.traces.stream import append, close, find_trace, set_outcome
from apps.memory_api.traces.tables import Trace, TraceEvent

router = APIRouter(prefix="/api/v1/traces", tags=["traces"], route_class=ApiRoute)

MANY_AS_NDJSON = example(examples.SENT, also={"application/x-ndjson": "One trace a line."})

NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


class NdjsonRoute(ApiRoute):
    """Matches only bodies of many lines, so that one path takes one trace or many."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        kind = media_type(Headers(scope=scope).get("content-type", ""))
        return super().matches(scope) if kind in NDJSON else (Match.NONE, {})


def show(trace: Trace) -> TraceView:
    return TraceView(**_fields(trace, TraceView))


def _fields(row: Trace | TraceEvent, model: type[TraceView | EventView]) -> dict[str, Any]:
    names = set(model.model_fields) - {"metadata", "events"}
    return {"metadata": row.metadata_} | {name: getattr(row, name) for name in names}


ReflectQuery = Annotated[
    Reflect,
    Query(description="auto: every outcome but success, and success too in full mode."),
]


async def take_many(
    request: Request,
    runtime: RuntimeDep,
    caller: Writer,
    reserved: ReservedDep,
    reflect: ReflectQuery = "auto",
) -> StreamingResponse:
    """Store traces, one a line: 250 lines a transaction; each succeeds or fails by itself.
    Answers a `BatchAnswer`.
    """
    answer = await take_body(Intake(runtime, caller, reflect, reserved), request.stream())
    return StreamingResponse(answer.parts(), media_type="application/json")


router.add_api_route(
    "",
    take_many,
    methods=["POST"],
    include_in_schema=False,
    route_class_override=NdjsonRoute,
)


KNOWN_OR_MANY: dict[int | str, dict[str, Any]] = {
    200: {
        "model": TraceAccepted | BatchAnswer,
        "description": "A trace that was here already; or the answer to many lines.",
    }
}


@router.post("", status_code=201, responses=KNOWN_OR_MANY, openapi_extra=MANY_AS_NDJSON)
async def take_one(
    body: TraceIn,
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    session: Session,
    cleaned: Cleaned,
    reflect: ReflectQuery = "auto",
) -> TraceAccepted:
    """Store one trace and, as `reflect` says, queue a reflection on it.

    The same `external_id` with the same content answers 200 and `duplicate: true`; with other
    content, 409. Many traces are sent as `application/x-ndjson`, one a line; the answer then lists
    line → id or error.
    """
    answer = await Intake(runtime, caller, reflect).one(session, body, cleaned=cleaned)
    response.status_code = 200 if answer.duplicate else 201
    response.headers["Location"] = f"/api/v1/traces/{answer.trace_id}"
    return answer


@router.get("")
async def list_all(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    outcome: OutcomeType | None = None,
    state: Literal["open", "closed"] | None = None,
    task_key: Annotated[str | None, Query(max_length=128)] = None,
    playbook: Annotated[str | None, Query(max_length=128)] = None,
    limit: Limit = 50,
) -> Page[TraceView]:
    """Traces of a project, newest first."""
    rows = await list_traces(
        session,
        project_id=caller.project(project_id),
        outcome=outcome,
        state=state,
        task_key=task_key,
        playbook=playbook,
        cursor=cursor,
        limit=limit,
    )
    return page(rows, limit, show)


@router.get("/{trace_id}")
async def read(trace_id: UUID, session: Session, caller: Reader) -> TraceDetail:
    """One trace with its events and its evidence."""
    trace = await find_trace(session, trace_id, caller.project_id)
    events = await list_events(session, trace_id)
    return TraceDetail(
        **_fields(trace, TraceDetail),
        events=[EventView(**_fields(event, EventView)) for event in events],
    )


@router.post("/{trace_id}/events", openapi_extra=example({"events": examples.EVENTS}))
async def add_events(
    trace_id: UUID, body: EventsIn, session: Session, caller: Writer, cleaned: Cleaned
) -> TraceGrown:
    """More events of an open trace, in order."""
    trace = await find_trace(session, trace_id, caller.project_id, for_update=True)
    await append(session, trace, body)
    return TraceGrown(cleaned=cleaned, **_fields(trace, TraceView))


@router.post("/{trace_id}/outcome", openapi_extra=example({"outcome": "failure"}))
async def tell_outcome(
    trace_id: UUID,
    body: OutcomeIn,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    cleaned: Cleaned,
) -> TraceAccepted:
    """How a run turned out, or evidence of it, when that is known later; a closed trace is then
    reflected on. The same again changes nothing; another outcome is 409.
    """
    trace = await find_trace(session, trace_id, caller.project_id, for_update=True)
    intake = Intake(runtime, caller, body.reflect)
    if not set_outcome(trace, body):
        return await intake.known(session, trace, cleaned=cleaned)
    return await intake.ended(session, trace, cleaned=cleaned)


@router.post("/{trace_id}/close", openapi_extra=example({"outcome": "success"}))
async def end(
    trace_id: UUID,
    body: CloseIn,
    runtime: RuntimeDep,
    session: Session,
    caller: Writer,
    cleaned: Cleaned,
) -> TraceAccepted:
    """The end of an open trace, which is then reflected on. Once told, an outcome stays: another
    is 409.
    """
    trace = await find_trace(session, trace_id, caller.project_id, for_update=True)
    close(trace, body)
    return await Intake(runtime, caller, body.reflect).ended(session, trace, cleaned=cleaned)
