"""Stores traces and events: rows, content hash, and traces with an `external_id` that exists."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import to_json
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.core.ids import new_id
from memory_api.core.statements import fetch_column, fetch_rows, load_statement
from memory_api.traces.queries import get_trace, get_trace_by_external_id
from memory_api.traces.redaction import redact_trace_isolated
from memory_api.traces.schemas import CreateTraceRequest, Event, ReflectMode
from memory_api.traces.tables import TraceRow
from memory_api.traces.tools import ToolDefinition, merge_tools

INSERT_TRACES = load_statement("traces/storage.sql", "insert_traces")
KNOWN_MEMORIES = load_statement("traces/storage.sql", "known_memories")
INSERT_EVENTS = load_statement("traces/storage.sql", "insert_events")
MAX_BATCH_CHARACTERS = 512 * 1024
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


@dataclass(frozen=True)
class NewTrace:
    """A redacted trace that is ready to be stored: the row of `to_row`, and the events."""

    row: Mapping[str, Any]
    event_batches: Iterable[tuple[int, str]]
    """The seq of the first event, and `events_json`. May be an iterator."""


async def prepare_trace(
    body: CreateTraceRequest, tenant_id: UUID, project_id: str, trace_id: UUID | None = None
) -> NewTrace:
    """Redacts a trace, which takes up to 30 s for a large one: no transaction should be open.
    Raises `WorkTimeout`.
    """
    is_large = sum(len(event.content) for event in body.events) > MAX_BATCH_CHARACTERS
    if is_large:  # the event loop serves other requests meanwhile
        content = await asyncio.to_thread(content_hash, body)
    else:
        content = content_hash(body)
    await asyncio.sleep(0)  # each pass over 750,000 values takes half a second
    clean = await redact_trace_isolated(body, tenant_id)
    row = to_row(tenant_id, clean, project_id, content, trace_id)
    return NewTrace(row, _event_batches(clean.events, 0))


async def store_trace(session: AsyncSession, new: NewTrace) -> StoredTrace:
    """Stores a trace and its events. If the `external_id` or the ID exists, returns the existing
    trace. Raises `Conflict` for an existing `external_id` with other content, and `InvalidRequest`
    for a related memory that does not exist.
    """
    row = new.row
    existing = await _find_existing(session, row)
    if existing is not None:
        return existing
    await _check_related_memories(session, row["project_id"], row["related_memory_ids"])
    statement = insert(TraceRow).values({ATTRIBUTES[name]: value for name, value in row.items()})
    trace = await session.scalar(statement.on_conflict_do_nothing().returning(TraceRow))
    if trace is None:  # a concurrent request stored the trace first
        return await _find_existing(session, row) or await _stored_before(session, row["id"])
    await _insert_event_batches(session, trace.id, new.event_batches)
    return StoredTrace(trace, duplicate=False)


async def store_new_trace(session: AsyncSession, new: NewTrace) -> UUID:
    """`store_trace` for a trace that is new except after a crash: it is looked up only then. It has
    no related memories. Returns the ID of the trace.
    """
    trace_id: UUID = new.row["id"]
    if not await insert_traces(session, [dict(new.row)]):
        return (await store_trace(session, new)).trace.id
    await _insert_event_batches(session, trace_id, new.event_batches)
    return trace_id


async def _check_related_memories(
    session: AsyncSession, project_id: str, memory_ids: Sequence[str]
) -> None:
    if not memory_ids:
        return
    parameters = {"project": project_id, "ids": memory_ids}
    known = {
        str(memory_id) for memory_id in await fetch_column(session, KNOWN_MEMORIES, parameters)
    }
    missing = next((memory_id for memory_id in memory_ids if memory_id not in known), None)
    if missing is not None:
        raise InvalidRequest(
            f"`related_memory_ids` contains {missing}, which is no memory of this project.",
            field="related_memory_ids",
        )


async def _find_existing(session: AsyncSession, row: Mapping[str, Any]) -> StoredTrace | None:
    if row["external_id"] is None:
        return None
    trace = await get_trace_by_external_id(session, row["project_id"], row["external_id"])
    if trace is None:
        return None
    if trace.content_hash != row["content_hash"]:
        raise Conflict(
            f"A trace with `external_id` '{trace.external_id}' and other content already exists. To"
            " replace it, delete it first.",
            field="external_id",
        )
    return StoredTrace(trace, duplicate=True)


async def _stored_before(session: AsyncSession, trace_id: UUID) -> StoredTrace:
    """The trace that an earlier attempt of the same request stored before its process ended."""
    trace = await get_trace(session, trace_id)
    assert trace is not None
    return StoredTrace(trace, duplicate=True)


async def add_events(session: AsyncSession, trace: TraceRow, events: Sequence[Event]) -> None:
    first = trace.event_count
    await _insert_event_batches(session, trace.id, _event_batches(events, first))
    trace.event_count = first + len(events)


async def _insert_event_batches(
    session: AsyncSession, trace_id: UUID, batches: Iterable[tuple[int, str]]
) -> None:
    for first, text in batches:
        await insert_events(session, [(trace_id, first, text)])
        await asyncio.sleep(0)  # other requests come between the parts of a large trace


def _event_batches(events: Sequence[Event], first: int) -> Iterator[tuple[int, str]]:
    """The events of one trace for several statements if they are large: a statement needs its text
    four times in memory. `first` is the seq of the first event.
    """
    start = size = 0
    for number, event in enumerate(events):
        size += len(event.content)
        if size >= MAX_BATCH_CHARACTERS:
            yield first + start, events_json(events[start : number + 1])
            start, size = number + 1, 0
    if start < len(events):
        yield first + start, events_json(events[start:])


async def insert_events(session: AsyncSession, events: Sequence[tuple[UUID, int, str]]) -> None:
    """Stores events of any traces of the tenant: (trace ID, seq of the first event,
    `events_json`).
    """
    if not events:
        return
    trace_ids, first_seqs, texts = zip(*events, strict=True)
    parameters = {"trace_id": trace_ids, "first": first_seqs, "events": texts}
    await fetch_rows(session, INSERT_EVENTS, parameters)


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
    stored = await fetch_column(session, INSERT_TRACES, {"rows": to_json(encoded).decode()})
    return {UUID(str(trace_id)) for trace_id in stored}


def is_ready_for_learning(
    state: str,
    outcome: str | None,
    ground_truth: object,
    test_report: str | None,
    mode: ReflectMode,
) -> bool:
    """Whether a learning run starts for a trace: it is closed, and it has an outcome or evidence of
    one, or the request asks for it. The evaluation then decides whether to reflect.
    """
    is_known = outcome is not None or ground_truth is not None or bool(test_report)
    return state == "closed" and (mode == "always" or (mode == "auto" and is_known))


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
    for _, text in _event_batches(events, 0):
        yield separator + text[1:-1]
        separator = ","
    yield "]"


def to_row(
    tenant_id: UUID,
    body: CreateTraceRequest,
    project_id: str,
    content: bytes,
    trace_id: UUID | None,
) -> dict[str, Any]:
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
