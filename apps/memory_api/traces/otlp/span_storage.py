"""Stores the spans of one request as events of traces, in one transaction.

A trace is open until the root span of its agent run arrives, and is then reflected on after
`LATE_SPAN_DELAY`. Spans that arrive later are still appended to it. Events that the trace has are
skipped, so a request that is sent again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import ARRAY, Text, any_, literal, select
from sqlalchemy.dialects.postgresql import UUID as PgUuid
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.identity import Identity
from memory_api.core.db import current_tenant_id
from memory_api.core.schemas import MAX_EVENTS
from memory_api.traces.intake import TraceIntake
from memory_api.traces.otlp.genai import SOURCE, SpanGroup
from memory_api.traces.redaction import (
    count_redactions,
    redact_each_event_isolated,
    redact_trace_isolated,
)
from memory_api.traces.schemas import CreateTraceRequest, Event, EventType
from memory_api.traces.storage import (
    content_hash,
    events_json,
    insert_events,
    insert_traces,
    to_row,
)
from memory_api.traces.tables import TraceEventRow, TraceRow

LATE_SPAN_DELAY = timedelta(seconds=10)
"""Exporters send the spans of one agent run in several requests, not always the root last."""


@dataclass(frozen=True)
class SpanOptions:
    project_id: str | None = None
    playbook: str | None = None


@dataclass(frozen=True)
class TraceDraft:
    group: SpanGroup
    row: Mapping[str, Any]
    """The row of the trace, if it is new."""
    clean: CreateTraceRequest
    """The fields that the spans state."""
    events: Sequence[tuple[Event, Counter[str]]]
    """Each with the number of its secrets by kind."""


Drafts = Mapping[tuple[str, str], TraceDraft]
"""By project and external ID."""


async def prepare_drafts(
    caller: Identity, groups: Sequence[SpanGroup], options: SpanOptions
) -> Drafts:
    """Redacts the spans, which takes up to 30 s for many: no transaction should be open."""
    drafts: dict[tuple[str, str], TraceDraft] = {}
    for group in groups:
        project_id = caller.resolve_project(options.project_id or group.fields.get("project_id"))
        body = _to_trace(group, options)
        clean = await redact_trace_isolated(body, caller.tenant_id)
        row = to_row(caller.tenant_id, clean, project_id, content_hash(body), None)
        events = await redact_each_event_isolated(group.events, caller.tenant_id)
        drafts[project_id, group.external_id] = TraceDraft(group, row, clean, events)
    return drafts


async def store_spans(
    intake: TraceIntake, session: AsyncSession, drafts: Drafts, ended_roots: Collection[str]
) -> int:
    """Returns the number of events that were not stored because their trace is full. Raises
    `QueueFull`.
    """
    await insert_traces(session, [dict(drafts[key].row) for key in sorted(drafts)])
    others = {f"otel:{trace_id}" for trace_id in ended_roots}
    traces = await _lock_traces(session, {name for _, name in drafts} | others)
    added, full = await _add_events(session, drafts, traces)
    ended: list[TraceRow] = []
    for key, trace in traces.items():
        draft = drafts.get(key)
        if draft is not None:
            _update_fields(trace, draft)
        is_end = draft.group.has_ended if draft is not None else True
        if is_end and trace.state == "open" and trace.event_count > 0:
            trace.state = "closed"
            trace.closed_at = datetime.now(UTC)
            ended.append(trace)
        if key in added or is_end:
            trace.updated_at = datetime.now(UTC)
    await _enqueue_learning(intake, session, ended)
    return full


def _to_trace(group: SpanGroup, options: SpanOptions) -> CreateTraceRequest:
    """The trace without events. Fields that are not valid are left out and named."""
    base: dict[str, Any] = {
        "external_id": group.external_id,
        "session_id": group.session_id,
        "playbook": options.playbook,
        "state": "open",
        "metadata": {"source": SOURCE},
    }
    try:
        return CreateTraceRequest.model_validate(base | group.fields)
    except ValidationError as error:
        invalid = sorted({str(each["loc"][0]) for each in error.errors() if each["loc"]})
        base["metadata"] |= {"invalid_attributes": invalid}
        group.fields = {name: v for name, v in group.fields.items() if name not in invalid}
        return CreateTraceRequest.model_validate(base | group.fields)


async def _lock_traces(
    session: AsyncSession, external_ids: set[str]
) -> dict[tuple[str, str], TraceRow]:
    """The stored traces by project and external ID, locked in a fixed order."""
    rows = await session.scalars(
        select(TraceRow)
        .where(
            TraceRow.tenant_id == current_tenant_id(session),
            TraceRow.external_id == any_(literal(sorted(external_ids), ARRAY(Text))),
        )
        .order_by(TraceRow.id)
        .with_for_update()
    )
    return {(row.project_id, row.external_id): row for row in rows if row.external_id}


async def _add_events(
    session: AsyncSession,
    drafts: Drafts,
    traces: Mapping[tuple[str, str], TraceRow],
) -> tuple[set[tuple[str, str]], int]:
    """The keys of traces with new events, and the number of events without room."""
    events = {key: draft.events for key, draft in drafts.items() if key in traces}
    known = await _find_known_events(
        session, [(traces[key].id, [event for event, _ in events[key]]) for key in events]
    )
    inserted: list[tuple[UUID, int, str]] = []
    added: set[tuple[str, str]] = set()
    full = 0
    for key, found in events.items():
        trace = traces[key]
        new = [pair for pair in found if (trace.id, pair[0].event_id) not in known]
        room = max(0, MAX_EVENTS - trace.event_count)
        full += max(0, len(new) - room)
        new = new[:room]
        if not new:
            continue
        clean = [event for event, _ in new]
        inserted.append((trace.id, trace.event_count, events_json(clean)))
        trace.event_count += len(clean)
        _describe_task(trace, clean)
        if kinds := sum((counts for _, counts in new), Counter[str]()):
            trace.metadata_ = count_redactions(trace.metadata_, kinds)
        added.add(key)
    await insert_events(session, inserted)
    return added, full


async def _find_known_events(
    session: AsyncSession, events: Sequence[tuple[UUID, Sequence[Event]]]
) -> set[tuple[UUID, str | None]]:
    trace_ids = [trace_id for trace_id, _ in events]
    event_ids = sorted({event.event_id or "" for _, each in events for event in each})
    if not event_ids:
        return set()
    rows = await session.execute(
        select(TraceEventRow.trace_id, TraceEventRow.event_id).where(
            TraceEventRow.tenant_id == current_tenant_id(session),
            TraceEventRow.trace_id == any_(literal(trace_ids, ARRAY(PgUuid(as_uuid=True)))),
            TraceEventRow.event_id == any_(literal(event_ids, ARRAY(Text))),
        )
    )
    return {(trace_id, event_id) for trace_id, event_id in rows}


def _describe_task(trace: TraceRow, events: Sequence[Event]) -> None:
    """The first message of the user is the task, if the spans state none."""
    if trace.task_description is not None:
        return
    first = next((e for e in events if e.event_type is EventType.USER_MESSAGE), None)
    if first is not None:
        trace.task_description = first.content


def _update_fields(trace: TraceRow, draft: TraceDraft) -> None:
    """Fields that later spans state. What is stored is not overwritten."""
    if trace.session_id is None:
        trace.session_id = draft.group.session_id
    given, clean = draft.group.fields, draft.clean
    for name in ("outcome", "playbook", "task_key", "retrieval_id", "query", "generated_answer"):
        value: Any = getattr(clean, name)
        if name in given and value is not None and getattr(trace, name) is None:
            setattr(trace, name, str(value) if name == "outcome" else value)
    if "task_description" in given:
        trace.task_description = clean.task_description
    if clean.error is not None and trace.error is None:
        trace.error = clean.error.model_dump(mode="json")


async def _enqueue_learning(
    intake: TraceIntake, session: AsyncSession, traces: Sequence[TraceRow]
) -> None:
    await session.flush()
    projects = {
        trace.id: trace.project_id
        for trace in traces
        if intake.should_learn(trace.state, trace.outcome, trace.ground_truth, trace.test_report)
    }
    await intake.enqueue_learning_many(session, projects, after=LATE_SPAN_DELAY)
