"""Statements of the curator: earlier decisions, and bullets that search does not return."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    Select,
    Uuid,
    and_,
    func,
    literal,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import parse_cursor_bytes, parse_cursor_time
from memory_api.curation.tables import CuratedLessonRow
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryLinkRow, MemoryRow
from memory_api.playbooks.tables import (
    PlaybookRow,
    PlaybookVersionRow,
    ProposalRow,
)
from memory_api.traces.schemas import OutcomeType
from memory_api.traces.tables import TraceEventRow, TraceRow

WITNESSED = "witnessed_by"
"""Relation of a bullet to a trace (or memory) that taught it."""
MAX_TRACES_PER_BULLET = 5
"""Traces whose tools count as the tools of a bullet: the last ones."""


async def find_decisions(
    session: AsyncSession, scope: int, fingerprints: Collection[bytes]
) -> dict[bytes, CuratedLessonRow]:
    """Earlier decisions on lessons with these fingerprints."""
    rows = await session.scalars(
        select(CuratedLessonRow).where(
            CuratedLessonRow.tenant_id == current_tenant_id(session),
            CuratedLessonRow.scope_id == scope,
            CuratedLessonRow.fingerprint.in_(list(fingerprints)),
        )
    )
    return {row.fingerprint: row for row in rows}


async def list_decisions(
    session: AsyncSession,
    scope: int,
    *,
    decision: str | None,
    after: tuple[str, ...] | None,
    limit: int,
) -> Sequence[Any]:
    """Decisions as columns, the last first; one row more than `limit` when there is a next page.
    `after` is the time (ISO 8601) and fingerprint (hex) of the last row of the previous page.
    """
    row, lesson, bullet = CuratedLessonRow, aliased(MemoryRow), aliased(MemoryRow)
    tenant_id = current_tenant_id(session)
    query = (
        select(
            row.fingerprint,
            row.decision,
            row.reason,
            row.memory_id,
            row.run_id,
            row.updated_at.label("decided_at"),
            lesson.content.label("text"),
            bullet.key,
        )
        .outerjoin(lesson, and_(lesson.tenant_id == tenant_id, lesson.id == row.memory_id))
        .outerjoin(bullet, and_(bullet.tenant_id == tenant_id, bullet.id == row.bullet_id))
        .where(row.tenant_id == tenant_id, row.scope_id == scope)
    )
    if decision is not None:
        query = query.where(row.decision == decision)
    if after is not None:
        position = parse_cursor_time(after[0]), parse_cursor_bytes(after[1])
        query = query.where(tuple_(row.updated_at, row.fingerprint) < position)
    query = query.order_by(row.updated_at.desc(), row.fingerprint.desc()).limit(limit + 1)
    return (await session.execute(query)).all()


async def upsert_decisions(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Stores decisions; a later decision on the same text replaces the earlier one."""
    if not rows:
        return
    tenant_id = current_tenant_id(session)
    await session.execute(_UPSERT_DECISION, [{**row, "tenant_id": tenant_id} for row in rows])


_NEW_DECISION = upsert(CuratedLessonRow)
_REPLACED = ("decision", "bullet_id", "memory_id", "run_id", "reason", "updated_at")
# Built once: `excluded` is a copy of the table, which only the cyclic garbage collector frees.
_UPSERT_DECISION = _NEW_DECISION.on_conflict_do_update(
    index_elements=["tenant_id", "scope_id", "fingerprint"],
    set_={name: _NEW_DECISION.excluded[name] for name in _REPLACED},
)


async def load_memories(session: AsyncSession, ids: Collection[UUID]) -> dict[UUID, MemoryRow]:
    """Bullets by memory ID, including deleted ones."""
    if not ids:
        return {}
    rows = await session.scalars(
        select(MemoryRow).where(
            MemoryRow.tenant_id == current_tenant_id(session), MemoryRow.id.in_(list(ids))
        )
    )
    return {row.id: row for row in rows}


async def list_trace_tools(
    session: AsyncSession, trace_ids: Collection[UUID]
) -> dict[UUID, list[str]]:
    """Trace ID → the tools that its events name, the most used first."""
    if not trace_ids:
        return {}
    rows = await session.execute(
        select(TraceEventRow.trace_id, TraceEventRow.tool_name)
        .where(
            TraceEventRow.tenant_id == current_tenant_id(session),
            TraceEventRow.trace_id.in_(list(trace_ids)),
            TraceEventRow.tool_name.is_not(None),
        )
        .group_by(TraceEventRow.trace_id, TraceEventRow.tool_name)
        .order_by(TraceEventRow.trace_id, func.count().desc(), TraceEventRow.tool_name)
    )
    tools: dict[UUID, list[str]] = {}
    for trace_id, tool_name in rows:
        tools.setdefault(trace_id, []).append(tool_name or "")
    return tools


async def list_bullet_tools(
    session: AsyncSession, bullet_ids: Collection[UUID]
) -> dict[UUID, set[str]]:
    """Bullet → the tools of the last traces that taught it."""
    if not bullet_ids:
        return {}
    tenant_id = current_tenant_id(session)
    bullets = select(func.unnest(literal(list(bullet_ids), ARRAY(Uuid))).label("id")).subquery()
    last_traces = (
        select(MemoryLinkRow.target_id)
        .where(
            MemoryLinkRow.tenant_id == tenant_id,
            MemoryLinkRow.source_id == bullets.c.id,
            MemoryLinkRow.relation == WITNESSED,
            MemoryLinkRow.target_kind == "trace",
        )
        .order_by(MemoryLinkRow.created_at.desc(), MemoryLinkRow.target_id.desc())
        .limit(MAX_TRACES_PER_BULLET)
        .lateral()
    )
    rows = await session.execute(
        select(bullets.c.id, TraceEventRow.tool_name)
        .select_from(bullets.join(last_traces, true()))
        .join(
            TraceEventRow,
            and_(
                TraceEventRow.tenant_id == tenant_id,
                TraceEventRow.trace_id == last_traces.c.target_id,
                TraceEventRow.tool_name.is_not(None),
            ),
        )
        .distinct()
    )
    tools: dict[UUID, set[str]] = {}
    for bullet_id, tool_name in rows:
        tools.setdefault(bullet_id, set()).add(tool_name or "")
    return tools


async def list_traces_with_attempts(
    session: AsyncSession, trace_ids: Collection[UUID]
) -> dict[UUID, tuple[str | None, int, int]]:
    """Trace ID → its task, and the number of attempts at that task and of successful ones."""
    if not trace_ids:
        return {}
    attempt, trace = aliased(TraceRow), aliased(TraceRow)
    tenant_id = current_tenant_id(session)
    rows = await session.execute(
        select(
            trace.id,
            trace.task_description,
            func.count(attempt.id),
            func.count(attempt.id).filter(attempt.effective_outcome == OutcomeType.SUCCESS),
        )
        .select_from(trace)
        .outerjoin(
            attempt,
            and_(
                attempt.tenant_id == tenant_id,
                attempt.project_id == trace.project_id,
                attempt.task_key == trace.task_key,
                attempt.duplicate_of.is_(None),
            ),
        )
        .where(trace.tenant_id == tenant_id, trace.id.in_(list(trace_ids)))
        .group_by(trace.tenant_id, trace.id, trace.task_description)
    )
    return {trace_id: (task, attempts, successes) for trace_id, task, attempts, successes in rows}


async def list_bullet_titles(
    session: AsyncSession, scope: int, limit: int, *, waiting: bool = False
) -> Sequence[Any]:
    """The active bullets, or those that wait for confirmation, the most useful first: rows
    (key, title, when_to_use, content).
    """
    rows = await session.execute(
        select(MemoryRow.key, MemoryRow.title, MemoryRow.when_to_use, MemoryRow.content)
        .where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryRow.scope_id == scope,
            MemoryRow.key.is_not(None),
            MemoryRow.awaiting_confirmation if waiting else MemoryRow.status == MemoryStatus.ACTIVE,
        )
        .order_by(MemoryRow.usefulness.desc(), MemoryRow.observation_count.desc(), MemoryRow.seq)
        .limit(limit)
    )
    return rows.all()


async def list_proposed_deltas(session: AsyncSession, scope: int, limit: int) -> Sequence[Any]:
    """The deltas of open proposals, newest first."""
    rows = await session.scalars(
        select(ProposalRow.deltas)
        .where(
            ProposalRow.tenant_id == current_tenant_id(session),
            ProposalRow.scope_id == scope,
            ProposalRow.state == "waiting",
        )
        .order_by(ProposalRow.created_at.desc())
        .limit(limit)
    )
    return rows.all()


async def find_deleting_versions(
    session: AsyncSession, scope: int, versions: Collection[int]
) -> set[int]:
    """The versions among these that deleted the whole playbook."""
    if not versions:
        return set()
    rows = await session.scalars(
        select(PlaybookVersionRow.version).where(
            PlaybookVersionRow.tenant_id == current_tenant_id(session),
            PlaybookVersionRow.scope_id == scope,
            PlaybookVersionRow.version.in_(list(versions)),
            PlaybookVersionRow.change_type == "delete",
        )
    )
    return set(rows)


async def add_observations(session: AsyncSession, memory_id: UUID, count: int) -> None:
    """Adds observations to a bullet."""
    await session.execute(
        update(MemoryRow)
        .where(MemoryRow.tenant_id == current_tenant_id(session), MemoryRow.id == memory_id)
        .values(observation_count=MemoryRow.observation_count + count)
    )


async def list_least_useful_bullets(
    session: AsyncSession, scope: int, limit: int
) -> Sequence[MemoryRow]:
    """Active bullets with verdicts, the least useful first, then by fewest observations. Never
    pinned ones or those without verdicts.
    """
    rows = await session.scalars(
        select(MemoryRow)
        .where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryRow.scope_id == scope,
            MemoryRow.key.is_not(None),
            MemoryRow.status == MemoryStatus.ACTIVE,
            MemoryRow.pinned.is_(False),
            MemoryRow.helpful + MemoryRow.harmful > 0,
        )
        .order_by(MemoryRow.usefulness, MemoryRow.observation_count, MemoryRow.seq)
        .limit(limit)
    )
    return rows.all()


async def list_active_bullets(
    session: AsyncSession,
    scope: int,
    *,
    pinned: bool | None = None,
    since: int = -1,
    limit: int | None = None,
) -> Sequence[MemoryRow]:
    """The active bullets that changed after version `since`, the last changed first."""
    query = select(MemoryRow).where(
        MemoryRow.tenant_id == current_tenant_id(session),
        MemoryRow.scope_id == scope,
        MemoryRow.key.is_not(None),
        MemoryRow.status == MemoryStatus.ACTIVE,
        MemoryRow.playbook_version > since,
    )
    if pinned is not None:
        query = query.where(MemoryRow.pinned.is_(pinned))
    query = query.order_by(MemoryRow.playbook_version.desc(), MemoryRow.seq.desc()).limit(limit)
    return (await session.scalars(query)).all()


async def list_duplicate_bullets(session: AsyncSession, scope: int) -> Sequence[Sequence[str]]:
    """The keys of active bullets with the same fingerprint, without pinned ones, as groups; the
    bullet with the most verdicts and observations is the first of its group.
    """
    support = MemoryRow.helpful + MemoryRow.harmful + MemoryRow.observation_count
    keys = func.array_agg(aggregate_order_by(MemoryRow.key, support.desc(), MemoryRow.key))
    groups = await session.scalars(
        select(keys)
        .where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryRow.scope_id == scope,
            MemoryRow.key.is_not(None),
            MemoryRow.status == MemoryStatus.ACTIVE,
            MemoryRow.pinned.is_(False),
        )
        .group_by(MemoryRow.fingerprint)
        .having(func.count() > 1)
        .order_by(func.min(MemoryRow.seq))
    )
    return [[key or "" for key in group] for group in groups]


async def list_rejected_merges(session: AsyncSession, scope: int) -> set[frozenset[str]]:
    """The groups of bullets in merges that are proposed or were rejected."""
    rows = await session.scalars(
        select(ProposalRow.deltas)
        .where(
            ProposalRow.tenant_id == current_tenant_id(session),
            ProposalRow.scope_id == scope,
            ProposalRow.state.in_(("waiting", "rejected")),
        )
        .order_by(ProposalRow.created_at.desc())
        .limit(1000)
    )
    merges = [delta for deltas in rows for delta in deltas if delta.get("type") == "MERGE"]
    return {
        frozenset(filter(None, (delta.get("bullet_id"), *delta.get("source_ids", ()))))
        for delta in merges
    }


async def list_playbooks_to_clean_up(session: AsyncSession) -> Sequence[PlaybookRow]:
    """Playbooks that changed since their last cleanup, that have more active bullets than their
    limit, or a bullet with more harmful than helpful verdicts, at least one of them since it was
    last activated again.
    """
    harmful_bullets = select(MemoryRow.id).where(
        MemoryRow.tenant_id == PlaybookRow.tenant_id,
        MemoryRow.scope_id == PlaybookRow.scope_id,
        MemoryRow.key.is_not(None),
        MemoryRow.status == MemoryStatus.ACTIVE,
        MemoryRow.harmful > MemoryRow.helpful,
        MemoryRow.harmful > MemoryRow.harmful_at_release,
    )
    is_due = or_(
        PlaybookRow.version > PlaybookRow.cleaned_version,
        PlaybookRow.active_count > PlaybookRow.max_bullets,
        harmful_bullets.exists(),
    )
    return (await session.scalars(select_playbooks(session).where(is_due))).all()


def select_playbooks(session: AsyncSession) -> Select[PlaybookRow]:
    return (
        select(PlaybookRow)
        .where(
            PlaybookRow.tenant_id == current_tenant_id(session), PlaybookRow.deleted_at.is_(None)
        )
        .order_by(PlaybookRow.scope_id)
    )
