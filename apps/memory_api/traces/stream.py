"""Open traces: events as they happen, an outcome that comes late, the end."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Conflict, Invalid, NotFound
from apps.memory_api.core.schemas import MAX_EVENTS
from apps.memory_api.traces.ingest import add_events
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.redaction import (
    counted,
    events_without_secrets,
    outcome_without_secrets,
)
from apps.memory_api.traces.schemas import CloseIn, EventsIn, OutcomeIn, OutcomeType
from apps.memory_api.traces.tables import Trace


async def find_trace(
    session: AsyncSession, trace_id: UUID, project_id: str | None, *, for_update: bool = False
) -> Trace:
    """The trace, if the caller's key may see its project. Raises `NotFound`."""
    trace = await get_trace(session, trace_id, for_update=for_update)
    if trace is None or project_id not in (None, trace.project_id):
        raise NotFound
    return trace


async def append(session: AsyncSession, trace: Trace, body: EventsIn) -> None:
    """Add events to an open trace. Raises `Conflict` if it is closed, `Invalid` past the limit."""
    _must_be_open(trace)
    if trace.event_count + len(body.events) > MAX_EVENTS:
        raise Invalid(f"A trace has at most {MAX_EVENTS} events.", field="events")
    kinds = Counter[str]()
    await add_events(session, trace, events_without_secrets(body.events, kinds))
    _count(trace, kinds)
    trace.updated_at = datetime.now(UTC)


def set_outcome(trace: Trace, body: OutcomeIn) -> bool:
    """How a run turned out, whenever that becomes known. False when nothing in it is new. Raises
    `Conflict` for another outcome than the one that was told.
    """
    _must_agree(trace, body.outcome)
    body, kinds = outcome_without_secrets(body)
    told: dict[str, Any] = {
        "outcome": body.outcome.value,
        "error": body.error.model_dump(mode="json") if body.error else None,
        "ground_truth": body.ground_truth,
        "test_report": body.test_report,
    }
    news = {
        name: value
        for name, value in told.items()
        if value is not None and value != getattr(trace, name)
    }
    for name, value in news.items():
        setattr(trace, name, value)
    if news:
        _count(trace, kinds)
        trace.updated_at = datetime.now(UTC)
    return bool(news)


def close(trace: Trace, body: CloseIn) -> None:
    """End an open trace. Raises `Conflict` when it is closed or its outcome was told to be another,
    `Invalid` when it has no events.
    """
    _must_be_open(trace)
    _must_agree(trace, body.outcome)
    if trace.event_count == 0:
        raise Invalid("A closed trace needs at least one event.", field="events")
    _end(trace)
    if body.outcome is not None:
        trace.outcome = body.outcome.value
    body, kinds = outcome_without_secrets(body)
    if body.error is not None:
        trace.error = body.error.model_dump(mode="json")
        _count(trace, kinds)


def time_out(trace: Trace) -> None:
    """End a trace that was left open: nobody said how it ended."""
    _end(trace)
    trace.outcome = trace.outcome or OutcomeType.TIMEOUT.value


def end_untold(trace: Trace) -> None:
    """End a trace whose outcome somebody will report later."""
    _end(trace)


def _end(trace: Trace) -> None:
    trace.state = "closed"
    trace.closed_at = trace.updated_at = datetime.now(UTC)


def _count(trace: Trace, kinds: Counter[str]) -> None:
    if kinds:
        trace.metadata_ = counted(trace.metadata_, kinds)


def _must_agree(trace: Trace, outcome: OutcomeType | None) -> None:
    if trace.outcome is not None and outcome not in (None, trace.outcome):
        raise Conflict(f"The outcome is '{trace.outcome}' already.", field="outcome")


def _must_be_open(trace: Trace) -> None:
    if trace.state != "open":
        raise Conflict("This trace is closed.")
