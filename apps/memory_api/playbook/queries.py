"""Statements on playbooks, their bullets, versions, verdicts, servings and proposals."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Text, any_, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.cursor import Cursor, after
from apps.memory_api.core.db import raw_connection, tenant_of
from apps.memory_api.core.sql import load, read
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.scopes import ensure_scopes
from apps.memory_api.memory.tables import Label, Memory, MemoryRevision, MemoryVector
from apps.memory_api.playbook.rows import Author, BulletRow, Place
from apps.memory_api.playbook.sections import SectionDefinition
from apps.memory_api.playbook.tables import (
    BulletEvaluation,
    PlaybookRow,
    PlaybookVersion,
    Proposal,
    Serving,
)

NOW = 2**31 - 1
"""A version that no playbook reaches: what holds at it is what holds now."""
AS_OF = read(__file__, "as_of.sql")
PROVENANCE = load(__file__, "provenance.sql")
USAGE = load(__file__, "usage.sql")


async def get_playbook(
    session: AsyncSession, place: Place, *, lock: bool = False, share: bool = False
) -> PlaybookRow | None:
    """The playbook, deleted or not. `share` lets others share it and keeps those who change out."""
    query = select(PlaybookRow).where(
        PlaybookRow.tenant_id == tenant_of(session),
        PlaybookRow.project_id == place.project_id,
        PlaybookRow.name == place.name,
    )
    if lock or share:
        query = query.with_for_update(read=share)
    return await session.scalar(query)


async def ensure_playbook(
    session: AsyncSession, place: Place, sections: Sequence[SectionDefinition]
) -> PlaybookRow:
    """The playbook under its lock, made with these sections if it is missing."""
    found = await get_playbook(session, place, lock=True)
    if found is not None:
        return found
    scopes = await ensure_scopes(session, [place.address])
    await session.execute(
        upsert(PlaybookRow)
        .values(
            tenant_id=tenant_of(session),
            scope=scopes[place.address],
            project_id=place.project_id,
            name=place.name,
            sections=[section.model_dump() for section in sections],
        )
        .on_conflict_do_nothing()
    )
    made = await get_playbook(session, place, lock=True)
    assert made is not None, "just made, and playbooks are never removed"
    return made


async def list_playbooks(
    session: AsyncSession, project_id: str, *, deleted: bool, behind: str | None, limit: int
) -> Sequence[PlaybookRow]:
    """By name, those there are or those deleted; one row more than `limit` for a next page."""
    query = select(PlaybookRow).where(
        PlaybookRow.tenant_id == tenant_of(session),
        PlaybookRow.project_id == project_id,
        PlaybookRow.deleted_at.is_not(None) == deleted,
    )
    if behind is not None:
        query = query.where(PlaybookRow.name > behind)
    return (await session.scalars(query.order_by(PlaybookRow.name).limit(limit + 1))).all()


async def all_bullets(session: AsyncSession, scope: int) -> Sequence[Any]:
    """Every bullet that is not deleted, as columns, in the playbook's order."""
    names = "id key section content searchable_text keywords helpful harmful neutral when_to_use"
    columns = [getattr(Memory, name) for name in f"{names} title tags status pinned".split()]
    rows = await session.execute(
        select(*columns, Memory.metadata_.label("metadata_"))
        .where(
            Memory.tenant_id == tenant_of(session),
            Memory.scope == scope,
            Memory.key.is_not(None),
            Memory.status != Status.DELETED,
        )
        .order_by(Memory.place.nulls_last(), Memory.n)
    )
    return rows.all()


async def find_bullets(
    session: AsyncSession,
    scope: int,
    keys: Collection[str],
    *,
    said: Sequence[bytes] = (),
    lock: bool = False,
) -> dict[str, Memory]:
    """The rows under these keys, deleted or not, and the live ones that say these words."""
    if not keys and not said:
        return {}
    wanted = Memory.key == any_(literal(list(keys), ARRAY(Text)))
    if said:
        same = Memory.fingerprint.in_(said) & (Memory.status != Status.DELETED)
        wanted = or_(wanted, same & Memory.key.is_not(None))
    here = (Memory.tenant_id == tenant_of(session), Memory.scope == scope)
    query = select(Memory).where(*here, wanted).order_by(Memory.id)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return {row.key or "": row for row in await session.scalars(query)}


async def list_bullets(
    session: AsyncSession,
    scope: int,
    *,
    sections: Collection[str] | None = None,
    status: str | None = None,
    tag: str | None = None,
    behind: str | None = None,
    limit: int = 50,
) -> Sequence[Memory]:
    """By key; one row more than `limit` when there is a next page."""
    query = select(Memory).where(
        Memory.tenant_id == tenant_of(session), Memory.scope == scope, Memory.key.is_not(None)
    )
    query = query.where(Memory.status == status if status else Memory.status != Status.DELETED)
    if sections is not None:
        query = query.where(Memory.section.in_(sections))
    if tag is not None:
        query = query.where(Memory.tags.contains([tag]))
    if behind is not None:
        query = query.where(Memory.key > behind)
    return (await session.scalars(query.order_by(Memory.key).limit(limit + 1))).all()


async def section_labels(session: AsyncSession) -> Sequence[str]:
    """Every spelling of a section that a bullet of this tenant was ever served under."""
    mine = (Label.tenant_id == tenant_of(session), Label.space == "section")
    return (await session.scalars(select(Label.name).where(*mine))).all()


async def set_served_confidence(session: AsyncSession, memory: Memory, confidence: float) -> None:
    """Let search filter by the counters as they are now."""
    await session.execute(
        update(MemoryVector)
        .where(
            MemoryVector.tenant_id == tenant_of(session),
            MemoryVector.scope == memory.scope,
            MemoryVector.n == memory.n,
        )
        .values(confidence=confidence)
    )


async def add_version(
    session: AsyncSession, playbook: PlaybookRow, author: Author, **what: Any
) -> datetime:
    """Write down the playbook's new version. Its time is later than that of the one before, whoever
    began first.
    """
    later = playbook.updated_at + timedelta(microseconds=1)
    made = await session.execute(
        insert(PlaybookVersion)
        .values(
            tenant_id=tenant_of(session),
            scope=playbook.scope,
            version=playbook.version,
            active=playbook.active,
            reason=author.reason,
            actor=author.actor,
            run_id=author.run_id,
            created_at=func.greatest(func.clock_timestamp(), later),
            **what,
        )
        .returning(PlaybookVersion.created_at)
    )
    return made.scalar_one()


async def list_versions(
    session: AsyncSession, scope: int, *, below: int | None = None, limit: int = 50
) -> Sequence[PlaybookVersion]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(PlaybookVersion).where(
        PlaybookVersion.tenant_id == tenant_of(session), PlaybookVersion.scope == scope
    )
    if below is not None:
        query = query.where(PlaybookVersion.version < below)
    query = query.order_by(PlaybookVersion.version.desc()).limit(limit + 1)
    return (await session.scalars(query)).all()


async def version_at(session: AsyncSession, scope: int, moment: datetime) -> PlaybookVersion | None:
    """The version that held at a moment."""
    return await session.scalar(
        select(PlaybookVersion)
        .where(
            PlaybookVersion.tenant_id == tenant_of(session),
            PlaybookVersion.scope == scope,
            PlaybookVersion.created_at <= moment,
        )
        .order_by(PlaybookVersion.created_at.desc())
        .limit(1)
    )


async def get_version(session: AsyncSession, scope: int, version: int) -> PlaybookVersion | None:
    return await session.scalar(
        select(PlaybookVersion).where(
            PlaybookVersion.tenant_id == tenant_of(session),
            PlaybookVersion.scope == scope,
            PlaybookVersion.version == version,
        )
    )


async def sections_at(session: AsyncSession, scope: int, version: int) -> list[dict[str, Any]]:
    """The sections of a version; none before the first."""
    found = await session.scalar(
        select(PlaybookVersion.sections)
        .where(
            PlaybookVersion.tenant_id == tenant_of(session),
            PlaybookVersion.scope == scope,
            PlaybookVersion.version <= version,
            PlaybookVersion.sections.is_not(None),
        )
        .order_by(PlaybookVersion.version.desc())
        .limit(1)
    )
    return found or []


async def bullets_as_of(
    session: AsyncSession, scope: int, version: int = NOW, ids: Sequence[UUID] | None = None
) -> list[BulletRow]:
    """The bullets of a version, all or these: first those that have a place, then as made."""
    await session.flush()
    driver = await raw_connection(session)
    given = (tenant_of(session), scope, version, ids)
    rows = await driver.fetch(AS_OF, *given, record_class=BulletRow)
    return sorted(sorted(rows, key=itemgetter("n")), key=itemgetter("place"))


async def changed_between(
    session: AsyncSession, scope: int, first: int, last: int
) -> Sequence[UUID]:
    """The bullets that changed after version `first`, up to and including `last`."""
    rows = await session.scalars(
        select(MemoryRevision.memory_id)
        .distinct()
        .where(
            MemoryRevision.tenant_id == tenant_of(session),
            MemoryRevision.scope == scope,
            MemoryRevision.version > first,
            MemoryRevision.version <= last,
        )
    )
    return rows.all()


async def find_origins(session: AsyncSession, bullet_id: UUID) -> Sequence[Any]:
    given = {"tenant": tenant_of(session), "bullet": bullet_id}
    return (await session.execute(PROVENANCE, given)).all()


async def verdicts_on(
    session: AsyncSession,
    bullet_ids: Collection[UUID],
    trace_id: UUID | None,
    actor: str | None = None,
) -> Sequence[BulletEvaluation]:
    """The verdicts of one trace on these bullets; without a trace, those of one actor."""
    said = select(BulletEvaluation).where(
        BulletEvaluation.tenant_id == tenant_of(session),
        BulletEvaluation.bullet_id.in_(bullet_ids),
        BulletEvaluation.trace_id == trace_id,
    )
    said = said if trace_id else said.where(BulletEvaluation.actor == actor)
    return (await session.scalars(said)).all()


async def list_verdicts(
    session: AsyncSession, bullet_id: UUID, cursor: Cursor | None = None, limit: int = 50
) -> Sequence[BulletEvaluation]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(BulletEvaluation).where(
        BulletEvaluation.tenant_id == tenant_of(session), BulletEvaluation.bullet_id == bullet_id
    )
    query = after(query, BulletEvaluation.created_at, BulletEvaluation.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def get_serving(session: AsyncSession, render_id: UUID) -> Serving | None:
    return await session.scalar(
        select(Serving).where(
            Serving.tenant_id == tenant_of(session), Serving.render_id == render_id
        )
    )


async def add_servings(
    session: AsyncSession, rows: Sequence[Mapping[str, Any]], uses: Mapping[UUID, int]
) -> None:
    """Write servings, and count the memories they handed out."""
    tenant = tenant_of(session)
    await session.execute(
        upsert(Serving).on_conflict_do_nothing(), [{**row, "tenant_id": tenant} for row in rows]
    )
    if uses:
        used = {"memories": list(uses), "uses": list(uses.values())}
        await session.execute(USAGE, {"tenants": [tenant] * len(uses), **used})


async def get_proposal(
    session: AsyncSession, scope: int, proposal_id: UUID, *, lock: bool = False
) -> Proposal | None:
    mine = (Proposal.tenant_id == tenant_of(session), Proposal.scope == scope)
    query = select(Proposal).where(*mine, Proposal.id == proposal_id)
    return await session.scalar(query.with_for_update() if lock else query)


async def list_proposals(
    session: AsyncSession, scope: int, state: str, cursor: Cursor | None, limit: int
) -> Sequence[Proposal]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(Proposal).where(
        Proposal.tenant_id == tenant_of(session), Proposal.scope == scope, Proposal.state == state
    )
    query = after(query, Proposal.created_at, Proposal.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()
