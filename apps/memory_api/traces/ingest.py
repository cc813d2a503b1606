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

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import Conflict
from apps.memory_api.core.ids import new_id
from apps.memory_api.traces.queries import find_external, has_failed_attempt
from apps.memory_api.traces.redaction import without_secrets
from apps.memory_api.traces.schemas import Event, OutcomeType, Reflect, TraceIn
from apps.memory_api.traces.tables import Trace, TraceEvent

EVENTS = insert(TraceEvent.__table__)  # pyright: ignore[reportArgumentType] - a Table
"""Of the table, not the class: one statement for all rows, whichever of their fields are empty."""


@dataclass(frozen=True)
class Stored:
    """A trace in the database; `duplicate` when it was there already with the same content."""

    trace: Trace
    duplicate: bool


async def store_trace(session: AsyncSession, body: TraceIn, project_id: str) -> Stored:
    """Store a trace and its events, without the secrets in them. Raises `Conflict` when its
    external_id is taken by other content.
    """
    content = content_hash(body)
    known = await _known(session, body, project_id, content)
    if known is not None:
        return known
    body = without_secrets(body)
    statement = insert(Trace).values(_values(session, body, project_id, content))
    trace = await session.scalar(statement.on_conflict_do_nothing().returning(Trace))
    if trace is None:  # somebody else stored this external_id a moment ago
        known = await _known(session, body, project_id, content)
        assert known is not None
        return known
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


async def add_events(session: AsyncSession, trace: Trace, events: Sequence[Event]) -> None:
    """Append events behind those the trace has."""
    first = trace.event_count
    await _insert_events(session, trace, first, events)
    trace.event_count = first + len(events)


async def _insert_events(
    session: AsyncSession, trace: Trace, first: int, events: Sequence[Event]
) -> None:
    if not events:
        return
    await session.execute(
        EVENTS,
        [
            {
                "tenant_id": trace.tenant_id,
                "trace_id": trace.id,
                "seq": seq,
                "event_id": event.event_id or f"e{seq:04d}",
                "event_type": event.event_type.value,
                "content": event.content,
                "timestamp": event.timestamp,
                "metadata": event.metadata,
                "tool_name": event.tool_name,
                "error": event.error,
                "agent": event.agent,
            }
            for seq, event in enumerate(events, start=first)
        ],
    )


async def wants_reflection(session: AsyncSession, trace: Trace, asked: Reflect, mode: str) -> bool:
    """`auto`: every outcome but success; success in full mode, or when an earlier attempt of the
    task failed.
    """
    if trace.state != "closed" or asked == "never":
        return False
    if asked == "always":
        return True
    if trace.outcome is None:
        return False
    if trace.outcome != OutcomeType.SUCCESS or mode == "full":
        return True
    return await has_failed_attempt(session, trace)


def content_hash(body: TraceIn) -> bytes:
    """The same for the same trace, however its fields were ordered or spelled."""
    content: dict[str, Any] = body.model_dump(mode="json", exclude={"tenant_id", "project_id"})
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _values(
    session: AsyncSession, body: TraceIn, project_id: str, content: bytes
) -> dict[Any, Any]:
    now = datetime.now(UTC)
    closed = body.state == "closed"
    return {
        Trace.tenant_id: tenant_of(session),
        Trace.id: new_id(),
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
