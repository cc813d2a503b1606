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

from pydantic_core import to_json
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
_in_order = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
ATTRIBUTES = {
    known.columns[0].name: known.class_attribute for known in Trace.__mapper__.column_attrs
}
"""A trace's attributes by the names of their columns."""


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
    row = trace_row(tenant_of(session), body, project_id, content, trace_id)
    statement = insert(Trace).values({ATTRIBUTES[name]: value for name, value in row.items()})
    trace = await session.scalar(statement.on_conflict_do_nothing().returning(Trace))
    if trace is None:  # somebody else stored this external_id a moment ago
        known = await _known(session, body, project_id, content)
        return known or await _stored_before(session, trace_id)
    await insert_events(session, [(trace.id, 0, events_json(body.events))])
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
    await insert_events(session, [(trace.id, first, events_json(events))])
    trace.event_count = first + len(events)


async def insert_events(session: AsyncSession, events: Sequence[tuple[UUID, int, str]]) -> None:
    """Store events of any traces of the tenant: (trace, number of the first, `events_json`)."""
    if not events:
        return
    trace_ids, first, texts = zip(*events, strict=True)
    values = {"trace_id": trace_ids, "first": first, "events": texts}
    await session.execute(INSERT_EVENTS, {"tenant": tenant_of(session), **values})


def events_json(events: Sequence[Event]) -> str:
    """Events as `insert_events` takes them."""
    return to_json(events).decode()


async def insert_traces(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> set[UUID]:
    """Store new traces (`trace_row`); answers the ids of those that are stored: an external_id that
    is taken is not stored again.
    """
    if not rows:
        return set()
    sent = [row | {"content_hash": rf"\x{row['content_hash'].hex()}"} for row in rows]
    found = await session.scalars(INSERT_TRACES, {"rows": to_json(sent).decode()})
    return {UUID(str(trace_id)) for trace_id in found}


def is_learnt_from(state: str, outcome: str | None, asked: Reflect) -> bool:
    """Whether a trace is handed to those who learn: it has ended, and somebody told how or asked
    for it. What there is to learn is for the evaluation to say.
    """
    return state == "closed" and (asked == "always" or (asked == "auto" and outcome is not None))


def content_hash(body: TraceIn) -> bytes:
    """The same for the same trace, however its fields were ordered or spelled, and whether what is
    so anyway was said.
    """
    content = body.model_dump(
        mode="json", exclude={"tenant_id", "project_id"}, exclude_defaults=True
    )
    return hashlib.sha256(_in_order(content).encode()).digest()


def trace_row(
    tenant_id: UUID, body: TraceIn, project_id: str, content: bytes, trace_id: UUID | None
) -> dict[str, Any]:
    """A new trace by the names of its columns."""
    now = datetime.now(UTC)
    closed = body.state == "closed"
    return {
        "tenant_id": tenant_id,
        "id": trace_id or new_id(),
        "project_id": project_id,
        "external_id": body.external_id,
        "task_key": body.task_key,
        "parent_id": body.parent_id,
        "session_id": body.session_id,
        "playbook": body.playbook,
        "task_description": body.task_description,
        "task_goal": body.task_goal,
        "outcome": body.outcome.value if body.outcome else None,
        "state": body.state,
        "error": body.error.model_dump(mode="json") if body.error else None,
        "query": body.query,
        "generated_answer": body.generated_answer,
        "reasoning_steps": body.reasoning_steps or None,
        "ground_truth": body.ground_truth,
        "test_report": body.test_report,
        "used_keys": body.used_keys,
        "render_id": body.render_id,
        "related_memory_ids": [str(memory) for memory in body.related_memory_ids],
        "language": body.language,
        "metadata": body.metadata,
        "event_count": len(body.events),
        "content_hash": content,
        "created_at": now,
        "updated_at": now,
        "closed_at": now if closed else None,
    }
