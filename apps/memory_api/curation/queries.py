"""Statements of the curator and of the consolidation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import parse_cursor_bytes, parse_cursor_time
from memory_api.core.statements import Statement, StatementRow, fetch_rows, load_statement
from memory_api.curation.tables import CuratedLessonRow
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow

WITNESSED = "witnessed_by"
"""Relation of a bullet to a trace (or memory) that taught it."""
MAX_TRACES_PER_BULLET = 5
"""Traces whose tools count as the tools of a bullet: the last ones."""
MAX_REJECTED_MERGES = 1000


LIST_DECISIONS = load_statement("curation/queries.sql", "list_decisions")
TRACE_TOOLS = load_statement("curation/queries.sql", "trace_tools")
BULLET_TOOLS = load_statement("curation/queries.sql", "bullet_tools")
COUNT_TASKS = load_statement("curation/queries.sql", "count_tasks")
TRACES_WITH_ATTEMPTS = load_statement("curation/queries.sql", "traces_with_attempts")
BULLET_TITLES = load_statement("curation/queries.sql", "bullet_titles")
PROPOSALS = load_statement("curation/queries.sql", "proposals")
DELETING_VERSIONS = load_statement("curation/queries.sql", "deleting_versions")
DUPLICATE_BULLETS = load_statement("curation/queries.sql", "duplicate_bullets")


async def _fetch(
    session: AsyncSession, statement: Statement, **parameters: Any
) -> Sequence[StatementRow]:
    return await fetch_rows(
        session, statement, {"tenant": current_tenant_id(session), **parameters}
    )


async def find_decisions(
    session: AsyncSession, scope: int, fingerprints: Collection[bytes]
) -> dict[bytes, CuratedLessonRow]:
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
    return await _fetch(
        session,
        LIST_DECISIONS,
        scope=scope,
        decision=decision,
        after_time=parse_cursor_time(after[0]) if after else None,
        after_fingerprint=parse_cursor_bytes(after[1]) if after else None,
        limit=limit + 1,
    )


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
    rows = await _fetch(session, TRACE_TOOLS, traces=list(trace_ids)) if trace_ids else ()
    return {row.trace_id: row.tools for row in rows}


async def list_bullet_tools(
    session: AsyncSession, bullet_ids: Collection[UUID]
) -> dict[UUID, list[str]]:
    """Bullet → the tools of the last traces that taught it."""
    if not bullet_ids:
        return {}
    ids = list(bullet_ids)
    rows = await _fetch(session, BULLET_TOOLS, bullets=ids, max_traces=MAX_TRACES_PER_BULLET)
    return {row.id: row.tools for row in rows}


async def count_tasks(session: AsyncSession, bullet_ids: Collection[UUID]) -> dict[UUID, int]:
    """Bullet → the number of tasks whose traces taught it."""
    rows = await _fetch(session, COUNT_TASKS, bullets=list(bullet_ids)) if bullet_ids else ()
    return {row.source_id: row.tasks for row in rows}


async def list_traces_with_attempts(
    session: AsyncSession, trace_ids: Collection[UUID]
) -> dict[UUID, tuple[str | None, int, int]]:
    """Trace ID → its task, and the number of attempts at that task and of successful ones."""
    rows = await _fetch(session, TRACES_WITH_ATTEMPTS, traces=list(trace_ids)) if trace_ids else ()
    return {row.id: (row.task_description, row.attempts, row.successes) for row in rows}


async def list_bullet_titles(
    session: AsyncSession, scope: int, limit: int, *, waiting: bool = False
) -> Sequence[Any]:
    """The active bullets, or those that wait for confirmation, the most useful first: rows
    (key, title, when_to_use, content).
    """
    return await _fetch(session, BULLET_TITLES, scope=scope, waiting=waiting, limit=limit)


async def list_proposed_deltas(session: AsyncSession, scope: int, limit: int) -> Sequence[Any]:
    """The deltas of open proposals, newest first."""
    rows = await _fetch(session, PROPOSALS, scope=scope, states=["waiting"], limit=limit)
    return [row.deltas for row in rows]


async def list_rejected_merges(session: AsyncSession, scope: int) -> set[frozenset[str]]:
    """The groups of bullets in merges that are proposed or were rejected."""
    states, limit = ["waiting", "rejected"], MAX_REJECTED_MERGES
    rows = await _fetch(session, PROPOSALS, scope=scope, states=states, limit=limit)
    merges = [delta for row in rows for delta in row.deltas if delta.get("type") == "MERGE"]
    return {
        frozenset(filter(None, (delta.get("bullet_id"), *delta.get("source_ids", ()))))
        for delta in merges
    }


async def find_deleting_versions(
    session: AsyncSession, scope: int, versions: Collection[int]
) -> set[int]:
    """The versions among these that deleted the whole playbook."""
    if not versions:
        return set()
    rows = await _fetch(session, DELETING_VERSIONS, scope=scope, versions=list(versions))
    return {row.version for row in rows}


async def add_observations(session: AsyncSession, memory_id: UUID, count: int) -> None:
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
    query = _active_bullets(session, scope).where(
        MemoryRow.pinned.is_(False), MemoryRow.helpful + MemoryRow.harmful > 0
    )
    query = query.order_by(MemoryRow.usefulness, MemoryRow.observation_count, MemoryRow.seq)
    return (await session.scalars(query.limit(limit))).all()


async def list_active_bullets(
    session: AsyncSession,
    scope: int,
    *,
    pinned: bool | None = None,
    since: int = -1,
    limit: int | None = None,
) -> Sequence[MemoryRow]:
    """The active bullets that changed after version `since`, the last changed first."""
    query = _active_bullets(session, scope).where(MemoryRow.playbook_version > since)
    if pinned is not None:
        query = query.where(MemoryRow.pinned.is_(pinned))
    query = query.order_by(MemoryRow.playbook_version.desc(), MemoryRow.seq.desc()).limit(limit)
    return (await session.scalars(query)).all()


def _active_bullets(session: AsyncSession, scope: int) -> Select[MemoryRow]:
    return select(MemoryRow).where(
        MemoryRow.tenant_id == current_tenant_id(session),
        MemoryRow.scope_id == scope,
        MemoryRow.key.is_not(None),
        MemoryRow.status == MemoryStatus.ACTIVE,
    )


async def list_duplicate_bullets(session: AsyncSession, scope: int) -> Sequence[Sequence[str]]:
    """The keys of active bullets with the same fingerprint, without pinned ones, as groups; the
    bullet with the most verdicts and observations is the first of its group.
    """
    return [row.bullet_keys for row in await _fetch(session, DUPLICATE_BULLETS, scope=scope)]


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
    return (await session.scalars(_select_playbooks(session).where(is_due))).all()


async def list_changed_playbooks(
    session: AsyncSession,
) -> Sequence[tuple[PlaybookRow, PlaybookCurationRow | None]]:
    """Playbooks that changed since their last consolidation."""
    row = PlaybookCurationRow
    is_same = and_(row.tenant_id == PlaybookRow.tenant_id, row.scope_id == PlaybookRow.scope_id)
    query = _select_playbooks(session).add_columns(row).outerjoin(row, is_same)
    has_changed = PlaybookRow.version > func.coalesce(row.consolidated_version, 0)
    rows = await session.execute(query.where(has_changed))
    return [(playbook, curation) for playbook, curation in rows]


def _select_playbooks(session: AsyncSession) -> Select[PlaybookRow]:
    return (
        select(PlaybookRow)
        .where(
            PlaybookRow.tenant_id == current_tenant_id(session), PlaybookRow.deleted_at.is_(None)
        )
        .order_by(PlaybookRow.scope_id)
    )
