"""Statements on traces and events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Boolean,
    CollectionAggregate,
    ColumnElement,
    Select,
    Text,
    any_,
    bindparam,
    exists,
    func,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.statements import compile_statement, fetch_rows, load_statement
from memory_api.traces.schemas import Event, EventType, OutcomeType
from memory_api.traces.tables import TraceEventRow, TraceRow

ATTEMPT_EVENTS = load_statement("traces/storage.sql", "attempt_events")
TRACE_IDENTITIES = load_statement("traces/storage.sql", "trace_identities")
SEARCHED_TRACES = 5_000


def to_events(rows: Sequence[TraceEventRow]) -> list[Event]:
    """Converts rows to wire events without validation. They were validated when they were
    stored.
    """
    return [
        Event.model_construct(
            event_id=row.event_id,
            event_type=EventType(row.event_type),
            content=row.content,
            timestamp=row.timestamp,
            metadata=row.metadata_,
            tool_name=row.tool_name,
            error=row.error,
            agent=row.agent,
        )
        for row in rows
    ]


_TRACE = select(TraceRow).where(
    TraceRow.tenant_id == bindparam("tenant"), TraceRow.id == bindparam("trace")
)
_EVENTS = (
    select(TraceEventRow)
    .where(
        TraceEventRow.tenant_id == bindparam("tenant"), TraceEventRow.trace_id == bindparam("trace")
    )
    .order_by(TraceEventRow.seq)
)
_EVENT_SIZES = _EVENTS.with_only_columns(
    TraceEventRow.seq,
    (
        func.octet_length(TraceEventRow.content)
        + func.pg_column_size(TraceEventRow.metadata_)
        + func.coalesce(func.pg_column_size(TraceEventRow.error), 0)
    ).label("size"),
)
_ATTEMPTS = (
    TraceRow.tenant_id == bindparam("tenant"),
    TraceRow.project_id == bindparam("project"),
    TraceRow.task_key == bindparam("task"),
    TraceRow.created_at < bindparam("before"),
)
MAX_EARLIER_ATTEMPTS = 200
"""The newest earlier attempts at a task, which are searched for duplicates, failures and attempts
to compare. A task may have any number of attempts.
"""
_NEWEST_ATTEMPT = aliased(
    TraceRow,
    select(TraceRow)
    .where(*_ATTEMPTS)
    .order_by(TraceRow.created_at.desc())
    .limit(literal_column(str(MAX_EARLIER_ATTEMPTS)))
    .subquery("newest"),
)
_EARLIER_ATTEMPTS = (
    select(_NEWEST_ATTEMPT)
    .where(
        _NEWEST_ATTEMPT.state == literal_column("'closed'"),
        _NEWEST_ATTEMPT.outcome.is_not(None),
        _NEWEST_ATTEMPT.duplicate_of.is_(None),
    )
    .order_by(_NEWEST_ATTEMPT.created_at.desc())
    .limit(bindparam("limit"))
)
_DUPLICATE_CANDIDATES = compile_statement(
    _EARLIER_ATTEMPTS.where(
        _NEWEST_ATTEMPT.outcome == bindparam("outcome"),
        _NEWEST_ATTEMPT.event_count == bindparam("event_count"),
        _NEWEST_ATTEMPT.playbook.is_not_distinct_from(bindparam("playbook")),
        _NEWEST_ATTEMPT.retrieval_id.is_not_distinct_from(bindparam("retrieval_id")),
        _NEWEST_ATTEMPT.test_report.is_not_distinct_from(bindparam("test_report")),
        or_(bindparam("is_unnamed", type_=Boolean), _NEWEST_ATTEMPT.external_id.is_(None)),
    ).with_only_columns(
        _NEWEST_ATTEMPT.id, _NEWEST_ATTEMPT.ground_truth, _NEWEST_ATTEMPT.used_bullet_keys
    )
)
_HAS_FAILED_ATTEMPT = compile_statement(
    select(exists().where(_NEWEST_ATTEMPT.effective_outcome != bindparam("success")))
)
MAX_PAGE_BYTES = 1024 * 1024
"""Bytes of the events of one page."""


async def get_trace(
    session: AsyncSession, trace_id: UUID, *, for_update: bool = False
) -> TraceRow | None:
    query = _TRACE.with_for_update() if for_update else _TRACE
    return await session.scalar(query, {"tenant": current_tenant_id(session), "trace": trace_id})


async def find_traces_of_playbook(
    session: AsyncSession, trace_ids: Collection[UUID], playbook: str | None
) -> set[UUID]:
    """Those of these traces that name this playbook; with None, those that name none."""
    if not trace_ids:
        return set()
    rows = await session.scalars(
        select(TraceRow.id).where(
            TraceRow.tenant_id == current_tenant_id(session),
            TraceRow.id.in_(list(trace_ids)),
            TraceRow.playbook.is_not_distinct_from(playbook),
        )
    )
    return set(rows)


async def get_trace_by_external_id(
    session: AsyncSession, project_id: str, external_id: str
) -> TraceRow | None:
    return await session.scalar(
        select(TraceRow).where(
            TraceRow.tenant_id == current_tenant_id(session),
            TraceRow.project_id == project_id,
            TraceRow.external_id == external_id,
        )
    )


async def find_known_external_ids(
    session: AsyncSession, external_ids: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[UUID, bytes]]:
    """(project ID, external ID) → (trace ID, content hash), for those that have a trace."""
    if not external_ids:
        return {}
    rows = await session.execute(
        select(TraceRow.project_id, TraceRow.external_id, TraceRow.id, TraceRow.content_hash).where(
            TraceRow.tenant_id == current_tenant_id(session),
            TraceRow.project_id == _any({project for project, _ in external_ids}),
            TraceRow.external_id == _any({name for _, name in external_ids}),
        )
    )
    return {(project, name): (id, content) for project, name, id, content in rows if name}


def _any(texts: Iterable[str]) -> CollectionAggregate[Any]:
    """ANY of an array: one parameter for any number of texts."""
    return any_(literal(list(texts), ARRAY(Text)))


def select_traces(
    session: AsyncSession,
    project_id: str,
    filters: Mapping[str, str | None],
    conditions: Iterable[ColumnElement[bool]] = (),
) -> Select[TraceRow]:
    """The traces of a project. `filters` are columns and their values; None does not filter."""
    return select(TraceRow).where(
        TraceRow.tenant_id == current_tenant_id(session),
        TraceRow.project_id == project_id,
        *(getattr(TraceRow, name) == value for name, value in filters.items() if value is not None),
        *conditions,
    )


def search_newest_traces(
    query: Select[TraceRow], words: str
) -> tuple[Select[TraceRow], type[TraceRow]]:
    """Of the newest `SEARCHED_TRACES` traces of a query, those with `words` in the description of
    their task, in any case; and the row that the new query selects.
    """
    newest = keyset_page(query, TraceRow.created_at, TraceRow.id, None).limit(SEARCHED_TRACES)
    row = aliased(TraceRow, newest.subquery())
    return select(row).where(row.task_description.icontains(words, autoescape=True)), row


async def list_traces(
    session: AsyncSession,
    query: Select[TraceRow],
    *,
    row: type[TraceRow] = TraceRow,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[TraceRow]:
    """Rows of a query, newest first. Returns `limit` + 1 rows if there is a next page."""
    query = keyset_page(query, row.created_at, row.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


@dataclass(frozen=True)
class EventPage:
    """Some events in order. `has_more` is True if others follow."""

    rows: Sequence[TraceEventRow]
    has_more: bool


async def count_traces(session: AsyncSession, project_id: str, since: datetime) -> int:
    """Traces of a project since a time."""
    statement = select(func.count()).where(
        TraceRow.tenant_id == current_tenant_id(session),
        TraceRow.project_id == project_id,
        TraceRow.created_at >= since,
    )
    return (await session.execute(statement)).scalar_one()


async def list_event_page(
    session: AsyncSession, trace_id: UUID, *, after: int | None = None, limit: int
) -> EventPage:
    """Up to `limit` events after sequence number `after`, and no more than fit into
    `MAX_PAGE_BYTES`, but at least one.
    """
    parameters = {"tenant": current_tenant_id(session), "trace": trace_id}
    sizes = _EVENT_SIZES if after is None else _EVENT_SIZES.where(TraceEventRow.seq > after)
    found = (await session.execute(sizes.limit(limit + 1), parameters)).all()
    total, count = 0, 0
    for _, size in found[:limit]:
        total += size
        if count and total > MAX_PAGE_BYTES:
            break
        count += 1
    if not count:
        return EventPage([], False)
    query = _EVENTS.where(TraceEventRow.seq.between(found[0].seq, found[count - 1].seq))
    return EventPage((await session.scalars(query, parameters)).all(), len(found) > count)


async def list_events(session: AsyncSession, trace_id: UUID) -> Sequence[TraceEventRow]:
    rows = await session.scalars(_EVENTS, {"tenant": current_tenant_id(session), "trace": trace_id})
    return rows.all()


async def list_earlier_attempts(
    session: AsyncSession, trace: TraceRow, limit: int = 8
) -> Sequence[TraceRow]:
    """Closed traces of the same task that are older than this one, newest first, without
    duplicates. For a duplicate: older than its original.
    """
    if trace.task_key is None:
        return []
    before = trace.created_at
    if trace.duplicate_of is not None:
        original = await get_trace(session, trace.duplicate_of)
        before = original.created_at if original else before
    parameters = _attempt_parameters(session, trace) | {"before": before, "limit": limit}
    return (await session.scalars(_EARLIER_ATTEMPTS, parameters)).all()


MAX_FIRST_EVENTS, MAX_LAST_EVENTS = 100, 300
"""Only these events of an earlier attempt are compared: the first ones and the last ones."""
MAX_ATTEMPT_CONTENT = 20_000
"""Characters of an event of an earlier attempt."""


async def load_attempt_events(
    session: AsyncSession, trace_ids: Sequence[UUID]
) -> dict[UUID, list[Event]]:
    """Trace ID → a bounded part of its events, in order, read with one statement."""
    if not trace_ids:
        return {}
    rows = await fetch_rows(
        session,
        ATTEMPT_EVENTS,
        {
            "ids": list(trace_ids),
            "first": MAX_FIRST_EVENTS,
            "last": MAX_LAST_EVENTS,
            "length": MAX_ATTEMPT_CONTENT,
        },
    )
    events: dict[UUID, list[Any]] = {}
    for row in rows:
        events.setdefault(row.trace_id, []).append(row)
    return {trace_id: to_events(found) for trace_id, found in events.items()}


async def find_duplicate_candidates(
    session: AsyncSession, trace: TraceRow, limit: int = 8
) -> list[UUID]:
    """IDs of earlier attempts at the same task that this trace may duplicate, newest first: the
    same number of events, outcome, playbook, retrieval, test report, ground truth and used bullets,
    and at most one of the two has an external ID.
    """
    if trace.task_key is None:
        return []
    same = (TraceRow.outcome, TraceRow.event_count, TraceRow.playbook, TraceRow.retrieval_id)
    parameters = _attempt_parameters(session, trace) | {
        "limit": limit,
        "test_report": trace.test_report,
        "is_unnamed": trace.external_id is None,
        **{column.key: getattr(trace, column.key) for column in same},
    }
    rows = await fetch_rows(session, _DUPLICATE_CANDIDATES, parameters)
    return [
        row.id
        for row in rows
        if row.ground_truth == trace.ground_truth and row.used_bullet_keys == trace.used_bullet_keys
    ]


def _attempt_parameters(session: AsyncSession, trace: TraceRow) -> dict[str, Any]:
    """The parameters of a statement on the attempts at the trace's task before the trace."""
    return {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "task": trace.task_key,
        "before": trace.created_at,
    }


async def has_failed_attempt(session: AsyncSession, trace: TraceRow) -> bool:
    """Whether one of the newest earlier attempts at the same task did not succeed."""
    if trace.task_key is None:
        return False
    parameters = _attempt_parameters(session, trace) | {"success": OutcomeType.SUCCESS.value}
    return (await fetch_rows(session, _HAS_FAILED_ATTEMPT, parameters))[0][0]


async def list_stale_open_traces(
    session: AsyncSession, before_seconds: float
) -> Sequence[TraceRow]:
    """At most 500 open traces that have not changed for this time, locked."""
    rows = await session.scalars(
        select(TraceRow)
        .where(
            TraceRow.tenant_id == current_tenant_id(session),
            TraceRow.state == "open",
            TraceRow.updated_at < func.now() - func.make_interval(0, 0, 0, 0, 0, 0, before_seconds),
        )
        .limit(500)
        .with_for_update(skip_locked=True)
    )
    return rows.all()


async def measure_events(session: AsyncSession, trace_id: UUID) -> int:
    """Bytes of the contents of a trace's events. PostgreSQL reads no content for it."""
    total = select(func.coalesce(func.sum(func.octet_length(TraceEventRow.content)), 0)).where(
        TraceEventRow.tenant_id == current_tenant_id(session), TraceEventRow.trace_id == trace_id
    )
    return await session.scalar(total) or 0


async def list_trace_identities(
    session: AsyncSession, trace_ids: Collection[UUID], limit: int
) -> Sequence[Any]:
    """(id, duplicate_of, parent_id, session_name, reported_ids, events_hash) of the newest of
    these traces.
    """
    if not trace_ids:
        return []
    return await fetch_rows(session, TRACE_IDENTITIES, {"ids": list(trace_ids), "most": limit})
