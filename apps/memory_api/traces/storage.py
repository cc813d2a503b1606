"""Stores traces and events: rows, content hash, and traces with an `external_id` that exists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import to_json
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.core.errors import Conflict, InvalidRequest
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.resources import load_sql
from apps.memory_api.memories.queries import find_missing_memories
from apps.memory_api.traces.queries import get_trace, get_trace_by_external_id
from apps.memory_api.traces.redaction import redact_trace_isolated
from apps.memory_api.traces.schemas import CreateTraceRequest, Event, ReflectMode
from apps.memory_api.traces.tables import TraceRow
from apps.memory_api.traces.tools import ToolDefinition, merge_tools

INSERT_TRACES = load_sql("traces/storage.sql", "insert_traces")
INSERT_EVENTS = load_sql("traces/storage.sql", "insert_events")
MAX_BATCH_CHARACTERS = 4 * 1024 * 1024
"""Characters of the events that one statement stores, roughly."""
_encode_sorted = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_EVENTS = TypeAdapter(list[Event])
ATTRIBUTES = {
    attribute.columns[0].name: attribute.class_attribute
    for attribute in TraceRow.__mapper__.column_attrs
}
"""Column name → attribute of `TraceRow`."""


@dataclass(frozen=True)
class StoredTrace:
    """A stored trace. `duplicate` is True if it already existed with the same content."""

    trace: TraceRow
    duplicate: bool


async def store_trace(
    session: AsyncSession, body: CreateTraceRequest, project_id: str, trace_id: UUID | None = None
) -> StoredTrace:
    """Redacts and stores a trace and its events. If the `external_id` or the `trace_id` exists,
    returns the existing trace. Raises `Conflict` for an existing `external_id` with other content,
    and `InvalidRequest` for a related memory that does not exist.
    """
    content = content_hash(body)
    existing = await _find_existing(session, body, project_id, content)
    if existing is not None:
        return existing
    await _check_related_memories(session, project_id, body.related_memory_ids)
    body = await redact_trace_isolated(body)
    row = to_row(current_tenant_id(session), body, project_id, content, trace_id)
    statement = insert(TraceRow).values({ATTRIBUTES[name]: value for name, value in row.items()})
    trace = await session.scalar(statement.on_conflict_do_nothing().returning(TraceRow))
    if trace is None:  # a concurrent request stored the trace first
        existing = await _find_existing(session, body, project_id, content)
        return existing or await _stored_before(session, trace_id)
    await _insert_events_of(session, trace.id, 0, body.events)
    return StoredTrace(trace, duplicate=False)


async def _check_related_memories(
    session: AsyncSession, project_id: str, memory_ids: Sequence[UUID]
) -> None:
    missing = await find_missing_memories(session, project_id, memory_ids)
    if missing:
        raise InvalidRequest(
            f"`related_memory_ids` contains {missing[0]}, which is no memory of this project.",
            field="related_memory_ids",
        )


async def _find_existing(
    session: AsyncSession, body: CreateTraceRequest, project_id: str, content: bytes
) -> StoredTrace | None:
    if body.external_id is None:
        return None
    trace = await get_trace_by_external_id(session, project_id, body.external_id)
    if trace is None:
        return None
    if trace.content_hash != content:
        raise Conflict(
            f"A trace with `external_id` '{body.external_id}' and other content already exists.",
            field="external_id",
        )
    return StoredTrace(trace, duplicate=True)


async def _stored_before(session: AsyncSession, trace_id: UUID | None) -> StoredTrace:
    """The trace that an earlier attempt of the same request stored before its process ended."""
    trace = None if trace_id is None else await get_trace(session, trace_id)
    assert trace is not None
    return StoredTrace(trace, duplicate=True)


async def add_events(session: AsyncSession, trace: TraceRow, events: Sequence[Event]) -> None:
    """Appends events to a trace."""
    first = trace.event_count
    await _insert_events_of(session, trace.id, first, events)
    trace.event_count = first + len(events)


async def _insert_events_of(
    session: AsyncSession, trace_id: UUID, first: int, events: Sequence[Event]
) -> None:
    """Stores the events of one trace, in several statements if they are large: a statement needs
    its text four times in memory.
    """
    for batch in _batches(events):
        await insert_events(session, [(trace_id, first, events_json(batch))])
        first += len(batch)


def _batches(events: Sequence[Event]) -> Iterator[Sequence[Event]]:
    start = size = 0
    for number, event in enumerate(events):
        size += len(event.content)
        if size >= MAX_BATCH_CHARACTERS:
            yield events[start : number + 1]
            start, size = number + 1, 0
    if start < len(events):
        yield events[start:]


async def insert_events(session: AsyncSession, events: Sequence[tuple[UUID, int, str]]) -> None:
    """Stores events of any traces of the tenant: (trace ID, seq of the first event,
    `events_json`).
    """
    if not events:
        return
    trace_ids, first_seqs, texts = zip(*events, strict=True)
    values = {"trace_id": trace_ids, "first": first_seqs, "events": texts}
    await session.execute(INSERT_EVENTS, {"tenant": current_tenant_id(session), **values})


def events_json(events: Sequence[Event]) -> str:
    """The JSON array that `insert_events` expects: sorted names, no defaults."""
    return _encode_sorted(_EVENTS.dump_python(list(events), mode="json", exclude_defaults=True))


async def insert_traces(session: AsyncSession, rows: Sequence[dict[str, Any]]) -> set[UUID]:
    """Stores new traces (rows of `to_row`) and skips those with an existing `external_id`. Returns
    the IDs of the stored ones.
    """
    if not rows:
        return set()
    encoded = [row | {"content_hash": rf"\x{row['content_hash'].hex()}"} for row in rows]
    stored = await session.scalars(INSERT_TRACES, {"rows": to_json(encoded).decode()})
    return {UUID(str(trace_id)) for trace_id in stored}


def is_ready_for_learning(state: str, outcome: str | None, mode: ReflectMode) -> bool:
    """Whether a learning run starts for a trace: it is closed, and it has an outcome or the request
    asks for it. The evaluation then decides whether to reflect.
    """
    return state == "closed" and (mode == "always" or (mode == "auto" and outcome is not None))


def content_hash(body: CreateTraceRequest, events: str | None = None) -> bytes:
    """SHA-256 of the normalized trace. The order and the spelling of fields, and explicit defaults,
    do not matter. `events` is `events_json(body.events)`, if the caller has it.
    """
    content = body.model_dump(
        mode="json", exclude={"tenant_id", "project_id", "events"}, exclude_defaults=True
    )
    parts: Iterable[str]
    if body.events:
        before = _encode_sorted({name: content[name] for name in content if name < "events"})[:-1]
        after = _encode_sorted({name: content[name] for name in content if name > "events"})[1:]
        text = _events_json_in_parts(body.events) if events is None else [events]
        name = '"events":' if before == "{" else ',"events":'
        parts = chain([before, name], text, ["" if after == "}" else ",", after])
    else:
        parts = [_encode_sorted(content)]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
    return digest.digest()


def _events_json_in_parts(events: Sequence[Event]) -> Iterator[str]:
    """`events_json`, whose text of a large trace is not in memory at once."""
    separator = "["
    for batch in _batches(events):
        yield separator + events_json(batch)[1:-1]
        separator = ","
    yield "]"


def to_row(
    tenant_id: UUID,
    body: CreateTraceRequest,
    project_id: str,
    content: bytes,
    trace_id: UUID | None,
) -> dict[str, Any]:
    """Column name → value of a new trace."""
    now = datetime.now(UTC)
    is_closed = body.state == "closed"
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
        "used_bullet_keys": body.used_bullet_keys,
        "retrieval_id": body.retrieval_id,
        "related_memory_ids": [str(memory_id) for memory_id in body.related_memory_ids],
        "language": body.language,
        "tools": tools_json(body.tools),
        "metadata": body.metadata,
        "event_count": len(body.events),
        "content_hash": content,
        "created_at": now,
        "updated_at": now,
        "closed_at": now if is_closed else None,
    }


def tools_json(tools: Sequence[ToolDefinition]) -> list[dict[str, Any]] | None:
    """The value of the column `traces.tools`: each name once."""
    return [tool.model_dump() for tool in merge_tools(tools)] if tools else None


def content_external_id(kind: str, content: Any) -> str:
    """An external ID derived from the content, so that the same content is processed once."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"{kind}:{hashlib.sha256(text.encode()).hexdigest()}"
