"""Storing traces: one becomes rows, a second of the same name is recognised, a run to reflect on it
is queued with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import Conflict
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.sql import load
from apps.memory_api.traces.queries import find_external, get_trace
from apps.memory_api.traces.redaction import without_secrets
from apps.memory_api.traces.schemas import Event, Reflect, TraceIn
from apps.memory_api.traces.tables import Trace

INSERT_TRACES = load(__file__, "insert_traces.sql")
INSERT_EVENTS = load(__file__, "insert_events.sql")
EVENT_COLUMNS = (
    *("trace_id", "seq", "event_id", "event_type", "content", "timestamp"),
    *("metadata", "tool_name", "error", "agent"),
)


@dataclass(frozen=True)
class Stored:
    """A trace in the database; `duplicate` when it was there already with the same content."""

    trace: Trace
    duplicate: bool


async def store_trace(
    session: AsyncSession, body: TraceIn, project_id: str, trace_id: UUID | None = None
) -> Stored:
    """Store a trace and its events, without the secrets in them. With the `trace_id` of one that is
    here it is that one. Raises `Conflict` when its external_id is taken by other content.
    """
    content = content_hash(body)
    known = await _known(session, body, project_id, content)
    if known is not None:
        return known
    body = without_secrets(body)
    statement = insert(Trace).values(_values(session, body, project_id, content, trace_id))
    trace = await session.scalar(statement.on_conflict_do_nothing().returning(Trace))
    if trace is None:  # somebody else stored this external_id a moment ago
        known = await _known(session, body, project_id, content)
        return known or await _stored_before(session, trace_id)
    await _insert_events(session, trace, 0, body.events)
    return Stored(trace, duplicate=False)


async def _known(
    session: AsyncSession, body: TraceIn, project_id: str, content: bytes
) -> Stored | None:
    if body.external_id is None:
        return None
    known = await find_external(session, project_id, body.external_id)
    if known is None:
        return None
    if known.content_hash != content:
        raise Conflict(
            f"A trace '{body.external_id}' with other content is here already.",
            field="external_id",
        )
    return Stored(known, duplicate=True)


async def _stored_before(session: AsyncSession, trace_id: UUID | None) -> Stored:
    """What an earlier try of this very request stored before its process died."""
    trace = None if trace_id is None else await get_trace(session, trace_id)
    assert trace is not None
    return Stored(trace, duplicate=True)


async def add_events(session: AsyncSession, trace: Trace, events: Sequence[Event]) -> None:
    """Append events behind those the trace has."""
    first = trace.event_count
    await _insert_events(session, trace, first, events)
    trace.event_count = first + len(events)


async def _insert_events(
    session: AsyncSession, trace: Trace, first: int, events: Sequence[Event]
) -> None:
    await insert_events(
        session, [(trace.id, seq, event) for seq, event in enumerate(events, start=first)]
    )


async def insert_events(session: AsyncSession, events: Sequence[tuple[UUID, int, Event]]) -> None:
    """Store events of any traces of the tenant: (trace, seq, event)."""
    if not events:
        return
    columns: dict[str, list[Any]] = {name: [] for name in EVENT_COLUMNS}
    for trace_id, seq, event in events:
        columns["trace_id"].append(trace_id)
        columns["seq"].append(seq)
        columns["event_id"].append(event.event_id or f"e{seq:04d}")
        columns["event_type"].append(event.event_type.value)
        columns["content"].append(event.content)
        columns["timestamp"].append(event.timestamp)
        columns["metadata"].append(_json(event.metadata) if event.metadata else "{}")
        columns["tool_name"].append(event.tool_name)
        columns["error"].append(None if event.error is None else _json(event.error))
        columns["agent"].append(event.agent)
    await session.execute(INSERT_EVENTS, {"tenant": tenant_of(session), **columns})


async def insert_traces(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> set[UUID]:
    """Store new traces (`trace_row`); answers the ids of those that are stored: an external_id that
    is taken is not stored again.
    """
    if not rows:
        return set()
    found = await session.scalars(INSERT_TRACES, {"rows": _json(rows)})
    return {UUID(str(trace_id)) for trace_id in found}


def trace_row(
    session: AsyncSession, body: TraceIn, project_id: str, content: bytes, trace_id: UUID | None
) -> dict[str, Any]:
    """A new trace by the names of its columns, for `insert_traces`."""
    values = _values(session, body, project_id, content, trace_id)
    return {attribute.property.columns[0].name: value for attribute, value in values.items()}


def _json(value: Any) -> str:
    return json.dumps(value, default=_as_text, ensure_ascii=False, separators=(",", ":"))


def _as_text(value: Any) -> str:
    """What PostgreSQL reads where JSON has no form."""
    return rf"\x{value.hex()}" if isinstance(value, bytes) else str(value)


def is_learnt_from(state: str, outcome: str | None, asked: Reflect) -> bool:
    """Whether a trace is handed to those who learn: it has ended, and somebody told how or asked
    for it. What there is to learn is for the evaluation to say.
    """
    return state == "closed" and (asked == "always" or (asked == "auto" and outcome is not None))


def content_hash(body: TraceIn) -> bytes:
    """The same for the same trace, however its fields were ordered or spelled."""
    content: dict[str, Any] = body.model_dump(mode="json", exclude={"tenant_id", "project_id"})
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _values(
    session: AsyncSession, body: TraceIn, project_id: str, content: bytes, trace_id: UUID | None
) -> dict[Any, Any]:
    now = datetime.now(UTC)
    closed = body.state == "closed"
    return {
        Trace.tenant_id: tenant_of(session),
        Trace.id: trace_id or new_id(),
        Trace.project_id: project_id,
        Trace.external_id: body.external_id,
        Trace.task_key: body.task_key,
        Trace.parent_id: body.parent_id,
        Trace.session_id: body.session_id,
        Trace.playbook: body.playbook,
        Trace.task_description: body.task_description,
        Trace.task_goal: body.task_goal,
        Trace.outcome: body.outcome.value if body.outcome else None,
        Trace.state: body.state,
        Trace.error: body.error.model_dump(mode="json") if body.error else None,
        Trace.query: body.query,
        Trace.generated_answer: body.generated_answer,
        Trace.reasoning_steps: body.reasoning_steps or None,
        Trace.ground_truth: body.ground_truth,
        Trace.test_report: body.test_report,
        Trace.used_keys: body.used_keys,
        Trace.render_id: body.render_id,
        Trace.related_memory_ids: [str(memory) for memory in body.related_memory_ids],
        Trace.language: body.language,
        Trace.metadata_: body.metadata,
        Trace.event_count: len(body.events),
        Trace.content_hash: content,
        Trace.created_at: now,
        Trace.updated_at: now,
        Trace.closed_at: now if closed else None,
    }
