"""Statements on traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    CollectionAggregate,
    Select,
    Text,
    any_,
    bindparam,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.cursor import Cursor, after
from apps.memory_api.core.db import tenant_of
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.tables import Trace, TraceEvent

_TRACE = select(Trace).where(Trace.tenant_id == bindparam("tenant"), Trace.id == bindparam("trace"))
_EVENTS = (
    select(TraceEvent)
    .where(TraceEvent.tenant_id == bindparam("tenant"), TraceEvent.trace_id == bindparam("trace"))
    .order_by(TraceEvent.seq)
)


async def get_trace(
    session: AsyncSession, trace_id: UUID, *, for_update: bool = False
) -> Trace | None:
    query = _TRACE.with_for_update() if for_update else _TRACE
    return await session.scalar(query, {"tenant": tenant_of(session), "trace": trace_id})


async def find_external(session: AsyncSession, project_id: str, external_id: str) -> Trace | None:
    return await session.scalar(
        select(Trace).where(
            Trace.tenant_id == tenant_of(session),
            Trace.project_id == project_id,
            Trace.external_id == external_id,
        )
    )


async def known_externals(
    session: AsyncSession, addresses: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[UUID, bytes]]:
    """Those of (project, external_id) that have a trace: its id and the hash of its content."""
    if not addresses:
        return {}
    rows = await session.execute(
        select(Trace.project_id, Trace.external_id, Trace.id, Trace.content_hash).where(
            Trace.tenant_id == tenant_of(session),
            Trace.project_id == _any({project for project, _ in addresses}),
            Trace.external_id == _any({name for _, name in addresses}),
        )
    )
    return {(project, name): (id, content) for project, name, id, content in rows if name}


def _any(texts: Iterable[str]) -> CollectionAggregate[Any]:
    """One parameter, however many they are."""
    return any_(literal(list(texts), ARRAY(Text)))


async def list_traces(
    session: AsyncSession,
    *,
    project_id: str,
    outcome: str | None = None,
    state: str | None = None,
    task_key: str | None = None,
    playbook: str | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[Trace]:
    """Newest first; one row more than `limit` when there is a next page."""
    wanted = {
        Trace.outcome: outcome,
        Trace.state: state,
        Trace.task_key: task_key,
        Trace.playbook: playbook,
    }
    query = select(Trace).where(
        Trace.tenant_id == tenant_of(session),
        Trace.project_id == project_id,
        *(column == value for column, value in wanted.items() if value is not None),
    )
    query = after(query, Trace.created_at, Trace.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def list_events(session: AsyncSession, trace_id: UUID) -> Sequence[TraceEvent]:
    rows = await session.scalars(_EVENTS, {"tenant": tenant_of(session), "trace": trace_id})
    return rows.all()


async def earlier_attempts(session: AsyncSession, trace: Trace, limit: int = 8) -> Sequence[Trace]:
    """Closed traces of the same task that came before this one (before the one that it is once
    more), newest first, each once.
    """
    if trace.task_key is None:
        return []
    came = trace.created_at
    if trace.same_as is not None and (first := await get_trace(session, trace.same_as)):
        came = first.created_at
    rows = await session.scalars(
        _of_task(session, trace, came).order_by(Trace.created_at.desc()).limit(limit)
    )
    return rows.all()


async def look_alikes(session: AsyncSession, trace: Trace, limit: int = 8) -> Sequence[Trace]:
    """Earlier attempts of the same task that may be this one sent again, newest first: of the same
    length and outcome, for the same playbook, told the same and checked against the same, and not
    both of them named.
    """
    if trace.task_key is None:
        return []
    rows = await session.scalars(
        _of_task(session, trace, trace.created_at)
        .where(
            Trace.outcome == trace.outcome,
            Trace.event_count == trace.event_count,
            Trace.playbook.is_not_distinct_from(trace.playbook),
            Trace.render_id.is_not_distinct_from(trace.render_id),
            Trace.test_report.is_not_distinct_from(trace.test_report),
            or_(literal(trace.external_id is None), Trace.external_id.is_(None)),
        )
        .order_by(Trace.created_at.desc())
        .limit(limit)
    )
    return [
        row
        for row in rows
        if row.ground_truth == trace.ground_truth and row.used_keys == trace.used_keys
    ]


def _of_task(session: AsyncSession, trace: Trace, came: datetime) -> Select[Trace]:
    return select(Trace).where(
        Trace.tenant_id == tenant_of(session),
        Trace.project_id == trace.project_id,
        Trace.task_key == trace.task_key,
        Trace.created_at < came,
        Trace.state == "closed",
        Trace.outcome.is_not(None),
        Trace.same_as.is_(None),
    )


async def has_failed_attempt(session: AsyncSession, trace: Trace) -> bool:
    """Whether an earlier attempt of the same task did not succeed."""
    if trace.task_key is None:
        return False
    found = await session.scalar(
        select(func.count())
        .select_from(Trace)
        .where(
            Trace.tenant_id == tenant_of(session),
            Trace.project_id == trace.project_id,
            Trace.task_key == trace.task_key,
            Trace.created_at < trace.created_at,
            Trace.outcome != OutcomeType.SUCCESS,
        )
    )
    return bool(found)


async def stale_open_traces(session: AsyncSession, before_seconds: float) -> Sequence[Trace]:
    """Open traces that nobody has added to for so long."""
    rows = await session.scalars(
        select(Trace)
        .where(
            Trace.tenant_id == tenant_of(session),
            Trace.state == "open",
            Trace.updated_at < func.now() - func.make_interval(0, 0, 0, 0, 0, 0, before_seconds),
        )
        .limit(500)
        .with_for_update(skip_locked=True)
    )
    return rows.all()
