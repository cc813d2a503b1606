"""Statements of the curator: what it decided before, and bullets that search does not bring."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.curator.tables import CuratedLesson
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.playbook.tables import PlaybookRow, PlaybookVersion, Proposal


async def known_lessons(
    session: AsyncSession, scope: int, fingerprints: Collection[bytes]
) -> dict[bytes, CuratedLesson]:
    """What was decided on lessons of these words."""
    rows = await session.scalars(
        select(CuratedLesson).where(
            CuratedLesson.tenant_id == tenant_of(session),
            CuratedLesson.scope == scope,
            CuratedLesson.fingerprint.in_(list(fingerprints)),
        )
    )
    return {row.fingerprint: row for row in rows}


async def remember(session: AsyncSession, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write down what was decided; a later decision on the same words replaces the earlier."""
    if not rows:
        return
    tenant = tenant_of(session)
    statement = upsert(CuratedLesson)
    later = {
        name: statement.excluded[name]
        for name in ("decision", "bullet_id", "memory_id", "run_id", "reason")
    }
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "scope", "fingerprint"],
            set_=later | {"updated_at": func.now()},
        ),
        [{**row, "tenant_id": tenant} for row in rows],
    )


async def memories_by_id(session: AsyncSession, ids: Collection[UUID]) -> dict[UUID, Memory]:
    """Bullets by the id of their memory, deleted or not."""
    if not ids:
        return {}
    rows = await session.scalars(
        select(Memory).where(Memory.tenant_id == tenant_of(session), Memory.id.in_(list(ids)))
    )
    return {row.id: row for row in rows}


async def quarantined_bullets(session: AsyncSession, scope: int, limit: int) -> Sequence[Memory]:
    """The bullets that wait to be reviewed, newest first: they are not found by search."""
    rows = await session.scalars(
        select(Memory)
        .where(
            Memory.tenant_id == tenant_of(session),
            Memory.scope == scope,
            Memory.status == Status.QUARANTINED,
            Memory.key.is_not(None),
        )
        .order_by(Memory.n.desc())
        .limit(limit)
    )
    return rows.all()


async def waiting_deltas(session: AsyncSession, scope: int, limit: int) -> Sequence[Any]:
    """The deltas of proposals that nobody decided yet, one list each, newest first."""
    rows = await session.scalars(
        select(Proposal.deltas)
        .where(
            Proposal.tenant_id == tenant_of(session),
            Proposal.scope == scope,
            Proposal.state == "waiting",
        )
        .order_by(Proposal.created_at.desc())
        .limit(limit)
    )
    return rows.all()


async def versions_that_delete_all(
    session: AsyncSession, scope: int, versions: Collection[int]
) -> set[int]:
    """Which of these versions took the whole playbook away."""
    if not versions:
        return set()
    rows = await session.scalars(
        select(PlaybookVersion.version).where(
            PlaybookVersion.tenant_id == tenant_of(session),
            PlaybookVersion.scope == scope,
            PlaybookVersion.version.in_(list(versions)),
            PlaybookVersion.change == "delete",
        )
    )
    return set(rows)


async def add_witnesses(session: AsyncSession, memory_id: UUID, count: int) -> None:
    """So many runs more say the same."""
    await session.execute(
        update(Memory)
        .where(Memory.tenant_id == tenant_of(session), Memory.id == memory_id)
        .values(witnesses=Memory.witnesses + count)
    )


async def least_useful(session: AsyncSession, scope: int, limit: int) -> Sequence[Memory]:
    """Active bullets that somebody judged, the least useful first, of equals the one that fewest
    runs speak for. Pinned ones and those without a vote are never among them.
    """
    rows = await session.scalars(
        select(Memory)
        .where(
            Memory.tenant_id == tenant_of(session),
            Memory.scope == scope,
            Memory.key.is_not(None),
            Memory.status == Status.ACTIVE,
            Memory.pinned.is_(False),
            Memory.helpful + Memory.harmful > 0,
        )
        .order_by(Memory.usefulness, Memory.witnesses, Memory.n)
        .limit(limit)
    )
    return rows.all()


async def live_bullets(session: AsyncSession, scope: int, since: int) -> Sequence[Memory]:
    """Active bullets that are not pinned and changed after a version, the oldest first."""
    rows = await session.scalars(
        select(Memory)
        .where(
            Memory.tenant_id == tenant_of(session),
            Memory.scope == scope,
            Memory.key.is_not(None),
            Memory.status == Status.ACTIVE,
            Memory.pinned.is_(False),
            Memory.version > since,
        )
        .order_by(Memory.n)
    )
    return rows.all()


async def decided_merges(session: AsyncSession, scope: int) -> set[frozenset[str]]:
    """The groups of bullets that somebody was asked to merge and has not yet, or would not."""
    rows = await session.scalars(
        select(Proposal.deltas)
        .where(
            Proposal.tenant_id == tenant_of(session),
            Proposal.scope == scope,
            Proposal.state.in_(("waiting", "rejected")),
        )
        .order_by(Proposal.created_at.desc())
        .limit(1000)
    )
    found = [delta for deltas in rows for delta in deltas if delta.get("type") == "MERGE"]
    return {
        frozenset(filter(None, (delta.get("bullet_id"), *delta.get("source_ids", ()))))
        for delta in found
    }


async def changed_playbooks(session: AsyncSession) -> Sequence[PlaybookRow]:
    """Playbooks with a version that near-duplicates were not looked for in."""
    return (
        await session.scalars(
            _playbooks(session).where(PlaybookRow.version > PlaybookRow.tidied_version)
        )
    ).all()


async def playbooks_over_cap(session: AsyncSession) -> Sequence[PlaybookRow]:
    over = PlaybookRow.active > PlaybookRow.max_bullets
    return (await session.scalars(_playbooks(session).where(over))).all()


async def suspected_playbooks(session: AsyncSession) -> Sequence[PlaybookRow]:
    """Playbooks with a bullet that was said to harm more often than to help, and again since it was
    last put back into service.
    """
    blamed = select(Memory.id).where(
        Memory.tenant_id == PlaybookRow.tenant_id,
        Memory.scope == PlaybookRow.scope,
        Memory.key.is_not(None),
        Memory.status == Status.ACTIVE,
        Memory.harmful > Memory.helpful,
        Memory.harmful > Memory.forgiven,
    )
    return (await session.scalars(_playbooks(session).where(blamed.exists()))).all()


def _playbooks(session: AsyncSession) -> Select[PlaybookRow]:
    return (
        select(PlaybookRow)
        .where(PlaybookRow.tenant_id == tenant_of(session), PlaybookRow.deleted_at.is_(None))
        .order_by(PlaybookRow.scope)
    )
