"""Statements on playbooks, their bullets, versions, verdicts, retrievals and proposals."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any
from uuid import UUID

from sqlalchemy import Select, Text, any_, bindparam, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.statements import StatementRow, fetch_rows, load_statement
from memory_api.memories.index.scopes import ensure_scopes
from memory_api.memories.queries import has_any_tag
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import LabelRow, MemoryRow, MemoryVectorRow
from memory_api.playbooks.bullet_rows import BulletOrder, order_bullets, sections_of
from memory_api.playbooks.ref import ChangeAuthor, PlaybookRef
from memory_api.playbooks.sections import SectionDefinition, matching_spellings
from memory_api.playbooks.tables import (
    BulletVerdictRow,
    PlaybookRow,
    PlaybookVersionRow,
    ProposalRow,
)

CURRENT_VERSION = 2**31 - 1
"""A version number that no playbook reaches. The state at this version is the current state."""
_PLAYBOOK = select(PlaybookRow).where(
    PlaybookRow.tenant_id == bindparam("tenant"),
    PlaybookRow.project_id == bindparam("project"),
    PlaybookRow.name == bindparam("name"),
)
BULLETS_AS_OF = load_statement("playbooks/queries.sql", "bullets_as_of")
PROVENANCE = load_statement("playbooks/queries.sql", "provenance")
COUNT_USES = load_statement("playbooks/queries.sql", "count_uses")
COUNT_REVIEWS = load_statement("playbooks/queries.sql", "count_reviews")
BULLET_VERSIONS = load_statement("playbooks/queries.sql", "bullet_versions")


async def get_playbook(
    session: AsyncSession, ref: PlaybookRef, *, lock: bool = False, share: bool = False
) -> PlaybookRow | None:
    """The playbook, deleted or not. `lock` locks its row FOR UPDATE, `share` FOR SHARE."""
    query = _PLAYBOOK.with_for_update(read=share) if lock or share else _PLAYBOOK
    parameters = {"project": ref.project_id, "name": ref.name}
    return await session.scalar(query, {"tenant": current_tenant_id(session), **parameters})


async def ensure_playbook(
    session: AsyncSession, ref: PlaybookRef, sections: Sequence[SectionDefinition]
) -> PlaybookRow:
    """The playbook with its row locked. Creates it with these sections if it is missing."""
    playbook = await get_playbook(session, ref, lock=True)
    if playbook is not None:
        return playbook
    scopes = await ensure_scopes(session, [ref.address])
    await session.execute(
        upsert(PlaybookRow)
        .values(
            tenant_id=current_tenant_id(session),
            scope_id=scopes[ref.address],
            project_id=ref.project_id,
            name=ref.name,
            sections=[section.model_dump() for section in sections],
        )
        .on_conflict_do_nothing()
    )
    created = await get_playbook(session, ref, lock=True)
    assert created is not None, "just created, and playbooks are never removed"
    return created


async def list_playbooks(
    session: AsyncSession, project_id: str, *, deleted: bool, after: str | None, limit: int
) -> Sequence[PlaybookRow]:
    """Deleted or not deleted playbooks by name. Returns `limit` + 1 rows if there is a
    next page.
    """
    query = select(PlaybookRow).where(
        PlaybookRow.tenant_id == current_tenant_id(session),
        PlaybookRow.project_id == project_id,
        PlaybookRow.deleted_at.is_not(None) == deleted,
    )
    if after is not None:
        query = query.where(PlaybookRow.name > after)
    return (await session.scalars(query.order_by(PlaybookRow.name).limit(limit + 1))).all()


@dataclass(frozen=True)
class ReviewCount:
    """What waits for a person in a playbook."""

    name: str
    active_count: int
    quarantined_count: int
    proposal_count: int


async def count_reviews(session: AsyncSession, project_id: str) -> Sequence[ReviewCount]:
    """The playbooks of a project by name, at most 200, with their waiting reviews."""
    rows = await fetch_rows(session, COUNT_REVIEWS, {"project": project_id})
    return [ReviewCount(*row) for row in rows]


async def find_bullets(
    session: AsyncSession,
    scope: int,
    keys: Collection[str],
    *,
    fingerprints: Sequence[bytes] = (),
    lock: bool = False,
) -> dict[str, MemoryRow]:
    """Bullets by key: those with these keys, deleted or not, and those that are not deleted and
    have a content with one of the `fingerprints`.
    """
    if not keys and not fingerprints:
        return {}
    condition = MemoryRow.key == any_(literal(list(keys), ARRAY(Text)))
    if fingerprints:
        same_text = MemoryRow.fingerprint.in_(fingerprints) & (
            MemoryRow.status != MemoryStatus.DELETED
        )
        condition = or_(condition, same_text & MemoryRow.key.is_not(None))
    query = (
        select(MemoryRow)
        .where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryRow.scope_id == scope,
            condition,
        )
        .order_by(MemoryRow.id)
    )
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    return {row.key or "": row for row in await session.scalars(query)}


def select_bullets(
    session: AsyncSession,
    scope: int,
    *,
    sections: Collection[str] | None = None,
    status: str | None = None,
    tag: str | None = None,
    words: str = "",
) -> Select[MemoryRow]:
    """The bullets of a playbook, in no order, with `words` in one of their texts, in any case."""
    query = select(MemoryRow).where(
        MemoryRow.tenant_id == current_tenant_id(session),
        MemoryRow.scope_id == scope,
        MemoryRow.key.is_not(None),
    )
    query = query.where(
        MemoryRow.status == status if status else MemoryRow.status != MemoryStatus.DELETED
    )
    if sections is not None:
        query = query.where(MemoryRow.section.in_(sections))
    if tag is not None:
        query = query.where(has_any_tag([tag]))
    if words:
        texts = MemoryRow.content, MemoryRow.when_to_use, MemoryRow.title, MemoryRow.key
        query = query.where(or_(*(text.icontains(words, autoescape=True) for text in texts)))
    return query


async def select_in_section(
    session: AsyncSession, playbook: PlaybookRow, section: str | None, **filters: Any
) -> Select[MemoryRow]:
    """`select_bullets` for a section by any of its spellings, or for all of them."""
    if section is None:
        return select_bullets(session, playbook.scope_id, **filters)
    defined = sections_of(playbook)
    names = {section, *(d.name for d in defined), *await list_section_names(session)}
    spellings = matching_spellings(defined, names, section)
    return select_bullets(session, playbook.scope_id, sections=spellings, **filters)


async def list_bullets(
    session: AsyncSession,
    query: Select[MemoryRow],
    *,
    order: BulletOrder = BulletOrder.KEY,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[MemoryRow]:
    """What `select_bullets` finds, in this order. Returns `limit` + 1 rows if there is a next
    page.
    """
    return (await session.scalars(order_bullets(query, order, cursor).limit(limit + 1))).all()


async def list_section_names(session: AsyncSession) -> Sequence[str]:
    """Every spelling of a section name under which a bullet of this tenant was ever indexed."""
    names = await session.scalars(
        select(LabelRow.name).where(
            LabelRow.tenant_id == current_tenant_id(session), LabelRow.type == "section"
        )
    )
    return names.all()


async def update_indexed_confidence(
    session: AsyncSession, memory: MemoryRow, confidence: float
) -> None:
    """Stores the confidence score of a bullet in the search index, which filters by it."""
    await session.execute(
        update(MemoryVectorRow)
        .where(
            MemoryVectorRow.tenant_id == current_tenant_id(session),
            MemoryVectorRow.scope_id == memory.scope_id,
            MemoryVectorRow.seq == memory.seq,
        )
        .values(confidence=confidence)
    )


async def add_version(
    session: AsyncSession, playbook: PlaybookRow, author: ChangeAuthor, **columns: Any
) -> datetime:
    """Inserts the new version of a playbook and returns its time, which is always later than that
    of the previous version, even if this transaction started first.
    """
    earliest = playbook.updated_at + timedelta(microseconds=1)
    created = await session.execute(
        insert(PlaybookVersionRow)
        .values(
            tenant_id=current_tenant_id(session),
            scope_id=playbook.scope_id,
            version=playbook.version,
            active_count=playbook.active_count,
            reason=author.reason,
            actor=author.actor,
            run_id=author.run_id,
            created_at=func.greatest(func.clock_timestamp(), earliest),
            **columns,
        )
        .returning(PlaybookVersionRow.created_at)
    )
    return created.scalar_one()


async def list_versions(
    session: AsyncSession, scope: int, *, below: int | None = None, limit: int = 50
) -> Sequence[PlaybookVersionRow]:
    """Newest first. Returns `limit` + 1 rows if there is a next page."""
    query = select(PlaybookVersionRow).where(
        PlaybookVersionRow.tenant_id == current_tenant_id(session),
        PlaybookVersionRow.scope_id == scope,
    )
    if below is not None:
        query = query.where(PlaybookVersionRow.version < below)
    query = query.order_by(PlaybookVersionRow.version.desc()).limit(limit + 1)
    return (await session.scalars(query)).all()


async def get_version_at(
    session: AsyncSession, scope: int, moment: datetime
) -> PlaybookVersionRow | None:
    return await session.scalar(
        select(PlaybookVersionRow)
        .where(
            PlaybookVersionRow.tenant_id == current_tenant_id(session),
            PlaybookVersionRow.scope_id == scope,
            PlaybookVersionRow.created_at <= moment,
        )
        .order_by(PlaybookVersionRow.created_at.desc())
        .limit(1)
    )


async def get_version(session: AsyncSession, scope: int, version: int) -> PlaybookVersionRow | None:
    return await session.scalar(
        select(PlaybookVersionRow).where(
            PlaybookVersionRow.tenant_id == current_tenant_id(session),
            PlaybookVersionRow.scope_id == scope,
            PlaybookVersionRow.version == version,
        )
    )


async def get_sections_at(session: AsyncSession, scope: int, version: int) -> list[dict[str, Any]]:
    """The sections of a version. An empty list before the first version."""
    sections = await session.scalar(
        select(PlaybookVersionRow.sections)
        .where(
            PlaybookVersionRow.tenant_id == current_tenant_id(session),
            PlaybookVersionRow.scope_id == scope,
            PlaybookVersionRow.version <= version,
            PlaybookVersionRow.sections.is_not(None),
        )
        .order_by(PlaybookVersionRow.version.desc())
        .limit(1)
    )
    return sections or []


async def list_bullets_as_of(
    session: AsyncSession,
    scope: int,
    version: int = CURRENT_VERSION,
    ids: Sequence[UUID] | None = None,
) -> list[StatementRow]:
    """The bullets of a version, all or those with these IDs, by position and then by age. Bullets
    without a position come last.
    """
    parameters = {"scope": scope, "version": version, "ids": ids}
    rows = await fetch_rows(session, BULLETS_AS_OF, parameters)
    return sorted(sorted(rows, key=itemgetter("seq")), key=itemgetter("position"))


async def list_provenance_links(session: AsyncSession, bullet_id: UUID) -> Sequence[Any]:
    return await fetch_rows(session, PROVENANCE, {"bullet": bullet_id})


async def list_bullet_versions(
    session: AsyncSession, bullet_id: UUID, *, after: int, limit: int
) -> Sequence[Any]:
    """Versions of a bullet, oldest first. Returns `limit` + 1 rows if there is a next page."""
    parameters = {"bullet": bullet_id, "after": after, "limit": limit + 1}
    return await fetch_rows(session, BULLET_VERSIONS, parameters)


async def list_verdicts_of_trace(
    session: AsyncSession,
    bullet_ids: Collection[UUID],
    trace_id: UUID | None,
    actor: str | None = None,
) -> Sequence[BulletVerdictRow]:
    """The verdicts of one trace on these bullets. Without a trace: those of one actor."""
    query = select(BulletVerdictRow).where(
        BulletVerdictRow.tenant_id == current_tenant_id(session),
        BulletVerdictRow.bullet_id.in_(bullet_ids),
        BulletVerdictRow.trace_id == trace_id,
    )
    if trace_id is None:
        query = query.where(BulletVerdictRow.actor == actor)
    return (await session.scalars(query)).all()


async def list_verdicts(
    session: AsyncSession, bullet_id: UUID, cursor: Cursor | None = None, limit: int = 50
) -> Sequence[BulletVerdictRow]:
    """Newest first. Returns `limit` + 1 rows if there is a next page."""
    query = select(BulletVerdictRow).where(
        BulletVerdictRow.tenant_id == current_tenant_id(session),
        BulletVerdictRow.bullet_id == bullet_id,
    )
    query = keyset_page(query, BulletVerdictRow.created_at, BulletVerdictRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def count_uses(session: AsyncSession, since: datetime, until: datetime) -> None:
    """Adds the bullets that retrievals in (since, until] returned to their use counts."""
    await fetch_rows(session, COUNT_USES, {"since": since, "until": until})


async def get_proposal(
    session: AsyncSession, scope: int, proposal_id: UUID, *, lock: bool = False
) -> ProposalRow | None:
    query = select(ProposalRow).where(
        ProposalRow.tenant_id == current_tenant_id(session),
        ProposalRow.scope_id == scope,
        ProposalRow.id == proposal_id,
    )
    return await session.scalar(query.with_for_update() if lock else query)


async def list_proposals(
    session: AsyncSession, scope: int, state: str, cursor: Cursor | None, limit: int
) -> Sequence[ProposalRow]:
    """Newest first. Returns `limit` + 1 rows if there is a next page."""
    query = select(ProposalRow).where(
        ProposalRow.tenant_id == current_tenant_id(session),
        ProposalRow.scope_id == scope,
        ProposalRow.state == state,
    )
    query = keyset_page(query, ProposalRow.created_at, ProposalRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()
