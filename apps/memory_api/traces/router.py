"""Traces over HTTP: one, many as NDJSON, or streamed while the agent runs."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers, QueryParams
from starlette.routing import Match
from starlette.types import Scope

from memory_api.api.bodies import MAX_LARGE_BODY, media_type, read_body
from memory_api.api.deps import (
    CursorQuery,
    Limit,
    ProjectQuery,
    Reader,
    Reservation,
    RuntimeDep,
    Sanitized,
    Session,
    Writer,
)
from memory_api.api.problems import Responses, problems
from memory_api.api.route import LargeBodyRoute
from memory_api.core.log_context import bind_log_context
from memory_api.core.pagination import Cursor, to_page
from memory_api.core.schemas import MAX_NAME_LENGTH, body_example
from memory_api.core.secret_redaction import redact
from memory_api.memories.erasure import add_tombstones
from memory_api.tenants.audit_log import record_audit_event
from memory_api.traces import open_traces, queries
from memory_api.traces.batch_intake import accept_batches
from memory_api.traces.deletion import delete_traces
from memory_api.traces.importers.formats import document_batches, read_records
from memory_api.traces.intake import TraceIntake
from memory_api.traces.ndjson import read_batches
from memory_api.traces.open_traces import require_trace
from memory_api.traces.redaction import RedactedChange, redact_change_isolated
from memory_api.traces.schemas import (
    EXAMPLE_EVENTS,
    EXAMPLE_REQUEST,
    AppendEventsRequest,
    CloseTraceRequest,
    CreateTraceRequest,
    CreateTracesResponse,
    OutcomeType,
    RecordOutcomeRequest,
    ReflectMode,
    TraceEvent,
    TraceEventPage,
    TraceFormat,
    TracePage,
    TraceReceipt,
    TraceState,
    TraceWithEvents,
    UpdatedTrace,
)
from memory_api.traces.storage import NewTrace, prepare_trace

router = APIRouter(prefix="/api/v1/traces", tags=["traces"], route_class=LargeBodyRoute)

TRACE_BODY = body_example(
    EXAMPLE_REQUEST,
    other_media_types={"application/x-ndjson": "One trace per line, in the JSON form."},
)
FIRST_EVENTS = 200
"""Events in the response of `get_trace`."""

NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


class NdjsonRoute(LargeBodyRoute):
    """Matches only NDJSON bodies and requests with a `format`, so that one path accepts one trace
    or many.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        content_type = media_type(Headers(scope=scope).get("content-type", ""))
        has_format = "format" in QueryParams(scope.get("query_string", b""))
        matches = content_type in NDJSON or has_format
        return super().matches(scope) if matches else (Match.NONE, {})


# Redacted bodies. Redaction takes up to 30 s and the dependency `Session` holds a connection, so a
# route declares the caller first, then the body, then the session.


async def read_new_trace(body: CreateTraceRequest, caller: Writer) -> NewTrace:
    caller.require_tenant(body.tenant_id)
    project_id = caller.resolve_project(body.project_id)
    return await prepare_trace(body, caller.tenant_id, project_id)


async def read_appended_events(
    body: AppendEventsRequest, caller: Writer
) -> RedactedChange[AppendEventsRequest]:
    return await redact_change_isolated(body, caller.tenant_id)


async def read_outcome(
    body: RecordOutcomeRequest, caller: Writer
) -> RedactedChange[RecordOutcomeRequest]:
    return await redact_change_isolated(body, caller.tenant_id)


async def read_closing(
    body: CloseTraceRequest, caller: Writer
) -> RedactedChange[CloseTraceRequest]:
    return await redact_change_isolated(body, caller.tenant_id)


NewTraceBody = Annotated[NewTrace, Depends(read_new_trace)]
AppendedEventsBody = Annotated[RedactedChange[AppendEventsRequest], Depends(read_appended_events)]
OutcomeBody = Annotated[RedactedChange[RecordOutcomeRequest], Depends(read_outcome)]
ClosingBody = Annotated[RedactedChange[CloseTraceRequest], Depends(read_closing)]


def _event_page(page: queries.EventPage) -> TraceEventPage:
    items = [TraceEvent.from_row(row) for row in page.rows]
    cursor = Cursor("trace_events", (str(page.rows[-1].seq),)) if page.has_more else None
    return TraceEventPage(items=items, next_cursor=cursor.encode() if cursor else None)


ReflectQuery = Annotated[
    ReflectMode,
    TraceState,
    Query(
        description="Whether to reflect on the trace. `auto`: on every outcome but success; on "
        "success too with `REFLECTIVE_MEMORY_MODE=full` or after a failed attempt at the task."
    ),
]


FormatQuery = Annotated[
    TraceFormat,
    Query(
        description="The format of the records: a line of NDJSON, or an item of a JSON list. With "
        "it, the response is a `CreateTracesResponse`. `auto` detects the format of each record."
    ),
]


OutcomeFromQuery = Annotated[
    str | None,
    Query(
        max_length=MAX_NAME_LENGTH,
        description="With `format`: the name of the score of Langfuse, of the feedback of "
        "LangSmith, or of the field of `metadata` that is the outcome. 1 or true is a success, 0 "
        "or false a failure, a number between them `partial`; the name of an outcome is that one.",
    ),
]


async def create_traces(
    request: Request,
    runtime: RuntimeDep,
    caller: Writer,
    reserved: Reservation,
    reflect: ReflectQuery = "auto",
    format: FormatQuery = "hansei",
    outcome_from: OutcomeFromQuery = None,
) -> StreamingResponse:
    """Stores one trace per line, 250 lines per transaction. Each line succeeds or fails alone.
    Answers a `CreateTracesResponse`.
    """
    intake = TraceIntake(runtime, caller, reflect, reserved)
    if media_type(request.headers.get("content-type", "")) == "application/json":
        body = await read_body(request, MAX_LARGE_BODY)
        batch = await accept_batches(intake, document_batches(body.raw, format, outcome_from))
    elif format == "hansei" and outcome_from is None:
        batch = await accept_batches(intake, read_batches(request.stream()))
    else:
        batch = await accept_batches(intake, read_records(request.stream(), format, outcome_from))
    return StreamingResponse(batch.chunks(), media_type="application/json")


router.add_api_route(
    "",
    create_traces,
    methods=["POST"],
    include_in_schema=False,
    route_class_override=NdjsonRoute,
)

CREATE_RESPONSES: Responses = {
    200: {
        "model": TraceReceipt | CreateTracesResponse,
        "description": "The trace was stored before (`duplicate: true`), or the answer to NDJSON.",
    },
    **problems("conflict", "queue_full"),
}


@router.post(
    "",
    status_code=201,
    summary="Store a trace",
    responses=CREATE_RESPONSES,
    openapi_extra=TRACE_BODY,
)
async def create_trace(
    response: Response,
    runtime: RuntimeDep,
    caller: Writer,
    body: NewTraceBody,
    session: Session,
    sanitized: Sanitized,
    reflect: ReflectQuery = "auto",
    format: FormatQuery = "hansei",
    outcome_from: OutcomeFromQuery = None,
) -> TraceReceipt:
    """Stores a trace and queues a reflection on it (`reflect`).

    A trace with a known `external_id` and the same content answers 200 with `duplicate: true`; with
    other content, 409. Send many traces as `application/x-ndjson`, one per line: the response is
    then a `CreateTracesResponse` with one item per line.
    """
    answer = await TraceIntake(runtime, caller, reflect).accept(session, body, sanitized=sanitized)
    bind_log_context(trace_id=answer.trace_id, run_id=answer.run_id)
    response.status_code = 200 if answer.duplicate else 201
    response.headers["Location"] = f"/api/v1/traces/{answer.trace_id}"
    return answer


@router.get("", summary="List traces")
async def list_traces(
    session: Session,
    caller: Reader,
    cursor: CursorQuery,
    project_id: ProjectQuery,
    outcome: OutcomeType | None = None,
    state: TraceState | None = None,
    task_key: Annotated[
        str | None, Query(max_length=128, description="Attempts at this task.")
    ] = None,
    playbook: Annotated[
        str | None, Query(max_length=128, description="Traces that name this playbook.")
    ] = None,
    external_id: Annotated[
        str | None, Query(max_length=128, description="The trace with this ID of yours.")
    ] = None,
    limit: Limit = 50,
) -> TracePage:
    """Lists the traces of a project without their events, newest first."""
    filters = {
        "outcome": outcome,
        "state": state,
        "task_key": task_key,
        "playbook": playbook,
        "external_id": external_id,
    }
    query = queries.select_traces(session, caller.resolve_project(project_id), filters)
    rows = await queries.list_traces(session, query, cursor=cursor, limit=limit)
    return to_page(TracePage, rows, limit)


@router.get("/{trace_id}", summary="Get a trace", responses=problems(404))
async def get_trace(trace_id: UUID, session: Session, caller: Reader) -> TraceWithEvents:
    """Returns a trace with its evidence and its first 200 events, or fewer if they are larger than
    1 MB.

    `GET /api/v1/traces/{trace_id}/events` with `next_cursor` lists the following events.
    """
    row = await require_trace(session, trace_id, caller.project_id)
    page = _event_page(await queries.list_event_page(session, trace_id, limit=FIRST_EVENTS))
    return TraceWithEvents.from_row(row).model_copy(
        update={"events": page.items, "next_cursor": page.next_cursor}
    )


@router.delete("/{trace_id}", status_code=204, summary="Delete a trace", responses=problems(404))
async def delete_trace(
    trace_id: UUID,
    session: Session,
    caller: Writer,
    reason: Annotated[
        str | None, Query(max_length=2_000, description="Stored with the tombstone.")
    ] = None,
) -> None:
    """Deletes a trace for good, with its events, evaluations and episode, and what its runs stored.

    The lessons learned from it stay. `POST /api/v1/erasures` erases them too.
    """
    await require_trace(session, trace_id, caller.project_id, for_update=True)
    await delete_traces(session, [trace_id])
    redacted = redact(reason).text if reason else None
    await add_tombstones(session, "trace", [str(trace_id)], reason=redacted)
    await record_audit_event(session, "trace.deleted", f"trace:{trace_id}", {"reason": redacted})


@router.get("/{trace_id}/events", summary="List the events of a trace", responses=problems(404))
async def list_trace_events(
    trace_id: UUID, session: Session, caller: Reader, cursor: CursorQuery, limit: Limit = 50
) -> TraceEventPage:
    """Lists the events of a trace in order. A page has at most 1 MB of them, but at least one."""
    await require_trace(session, trace_id, caller.project_id)
    after = cursor.integer("trace_events") if cursor else None
    return _event_page(await queries.list_event_page(session, trace_id, after=after, limit=limit))


@router.post(
    "/{trace_id}/events",
    summary="Append events to an open trace",
    responses=problems(404, 409),
    openapi_extra=body_example({"events": EXAMPLE_EVENTS}),
)
async def append_events(
    trace_id: UUID,
    caller: Writer,
    body: AppendedEventsBody,
    session: Session,
    sanitized: Sanitized,
) -> UpdatedTrace:
    """Appends events to an open trace, in the order of the list. Answers 409 for a closed trace."""
    trace = await require_trace(session, trace_id, caller.project_id, for_update=True)
    await open_traces.append_events(session, trace, body)
    return UpdatedTrace.from_row(trace).model_copy(update={"sanitized": sanitized})


@router.post(
    "/{trace_id}/outcome",
    summary="Record the outcome of a trace",
    responses=problems(404, 409, "queue_full"),
    openapi_extra=body_example({"outcome": "failure"}),
)
async def record_outcome(
    trace_id: UUID,
    runtime: RuntimeDep,
    caller: Writer,
    body: OutcomeBody,
    session: Session,
    sanitized: Sanitized,
) -> TraceReceipt:
    """Records the outcome of an agent run, or evidence of it, that became known later.

    A closed trace is then reflected on. Recording the same outcome again changes nothing; another
    outcome answers 409.
    """
    trace = await require_trace(session, trace_id, caller.project_id, for_update=True)
    intake = TraceIntake(runtime, caller, body.body.reflect)
    if not open_traces.record_outcome(trace, body):
        return await intake.accept_duplicate(session, trace, sanitized=sanitized)
    return await intake.accept_stored(session, trace, sanitized=sanitized)


@router.post(
    "/{trace_id}/close",
    summary="Close an open trace",
    responses=problems(404, 409, "queue_full"),
    openapi_extra=body_example({"outcome": "success"}),
)
async def close_trace(
    trace_id: UUID,
    runtime: RuntimeDep,
    caller: Writer,
    body: ClosingBody,
    session: Session,
    sanitized: Sanitized,
) -> TraceReceipt:
    """Closes an open trace, which is then reflected on.

    Answers 409 if the trace is closed or already has another outcome.
    """
    trace = await require_trace(session, trace_id, caller.project_id, for_update=True)
    open_traces.close_trace(trace, body)
    return await TraceIntake(runtime, caller, body.body.reflect).accept_stored(
        session, trace, sanitized=sanitized
    )
