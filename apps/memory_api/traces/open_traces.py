"""Open traces: append events, record the outcome, close."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, InvalidRequest, NotFound
from memory_api.core.schemas import MAX_EVENTS
from memory_api.traces.expected_results import with_match
from memory_api.traces.queries import get_trace
from memory_api.traces.redaction import RedactedChange, count_redactions
from memory_api.traces.schemas import (
    AppendEventsRequest,
    CloseTraceRequest,
    OutcomeType,
    RecordOutcomeRequest,
)
from memory_api.traces.storage import add_events, tools_json
from memory_api.traces.tables import TraceRow
from memory_api.traces.tools import MAX_TOOLS, merge_tools, to_tools

END_REASON_KEY = "end_reason"
"""The key of a trace's metadata with why Hansei closed it. A value of the client stays."""


async def require_trace(
    session: AsyncSession, trace_id: UUID, project_id: str | None, *, for_update: bool = False
) -> TraceRow:
    """The trace, if it exists in the caller's project. Raises `NotFound`."""
    trace = await get_trace(session, trace_id, for_update=for_update)
    if trace is None or project_id not in (None, trace.project_id):
        raise NotFound("Trace not found.")
    return trace


async def append_events(
    session: AsyncSession, trace: TraceRow, change: RedactedChange[AppendEventsRequest]
) -> None:
    """Adds events and tools to an open trace. Raises `Conflict` if it is closed, and
    `InvalidRequest` for more than `MAX_EVENTS` events or `MAX_TOOLS` tools.
    """
    body = change.body
    _require_open(trace)
    if trace.event_count + len(body.events) > MAX_EVENTS:
        raise InvalidRequest(f"A trace can have at most {MAX_EVENTS} events.", field="events")
    await add_events(session, trace, body.events)
    if body.tools:
        tools = merge_tools([*to_tools(trace.tools), *body.tools])
        if len(tools) > MAX_TOOLS:
            raise InvalidRequest(f"A trace can have at most {MAX_TOOLS} tools.", field="tools")
        trace.tools = tools_json(tools)
    _add_redactions(trace, change.counts)
    trace.updated_at = datetime.now(UTC)


def record_outcome(trace: TraceRow, change: RedactedChange[RecordOutcomeRequest]) -> bool:
    """Stores the reported outcome of an open or closed trace. Returns False if nothing is new.
    Raises `Conflict` if another outcome is already recorded, and `InvalidRequest` for a `match`
    that does not fit the ground truth of the trace.
    """
    body = change.body
    _require_same_outcome(trace, body.outcome)
    ground_truth = body.ground_truth
    if ground_truth is None and body.match is not None:
        try:
            ground_truth = with_match(trace.ground_truth, body.match)
        except ValueError as error:
            raise InvalidRequest(str(error), field="match") from error
    reported: dict[str, Any] = {
        "outcome": body.outcome.value,
        "error": body.error.model_dump(mode="json") if body.error else None,
        "ground_truth": ground_truth,
        "test_report": body.test_report,
    }
    changes = {
        name: value
        for name, value in reported.items()
        if value is not None and value != getattr(trace, name)
    }
    for name, value in changes.items():
        setattr(trace, name, value)
    if changes:
        _add_redactions(trace, change.counts)
        trace.updated_at = datetime.now(UTC)
    return bool(changes)


def close_trace(trace: TraceRow, change: RedactedChange[CloseTraceRequest]) -> None:
    """Closes an open trace. Raises `Conflict` if it is closed or has another outcome, and
    `InvalidRequest` if it has no events.
    """
    body = change.body
    _require_open(trace)
    _require_same_outcome(trace, body.outcome)
    if trace.event_count == 0:
        raise InvalidRequest(
            "A trace needs at least one event before it can be closed.", field="events"
        )
    close_as_it_is(trace)
    if body.outcome is not None:
        trace.outcome = body.outcome.value
    if body.error is not None:
        trace.error = body.error.model_dump(mode="json")
        _add_redactions(trace, change.counts)


def close_as_it_is(trace: TraceRow) -> None:
    """Closes a trace. Its outcome is what was recorded, if anything was."""
    trace.state = "closed"
    trace.closed_at = trace.updated_at = datetime.now(UTC)


def close_idle(trace: TraceRow) -> None:
    """Closes a trace without new events. Its metadata states that as `end_reason`."""
    close_as_it_is(trace)
    trace.metadata_ = {END_REASON_KEY: "idle"} | trace.metadata_


def _add_redactions(trace: TraceRow, redactions: Counter[str]) -> None:
    if redactions:
        trace.metadata_ = count_redactions(trace.metadata_, redactions)


def _require_same_outcome(trace: TraceRow, outcome: OutcomeType | None) -> None:
    if trace.outcome is not None and outcome not in (None, trace.outcome):
        raise Conflict(f"The outcome of this trace is already '{trace.outcome}'.", field="outcome")


def _require_open(trace: TraceRow) -> None:
    if trace.state != "open":
        raise Conflict("The trace is closed. Events can be appended only to open traces.")
