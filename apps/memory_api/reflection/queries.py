"""Statements on lessons."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.memory.scopes import find_scopes
from apps.memory_api.memory.tables import Memory, MemoryLink
from apps.memory_api.playbook.rows import Place


async def not_curated(session: AsyncSession, place: Place, lessons: Sequence[UUID]) -> list[UUID]:
    """Of these memories, those no bullet of the playbook was ever made of: one that a person took
    out does not come back.
    """
    scope = (await find_scopes(session, [place.address])).get(place.address)
    if scope is None or not lessons:
        return list(lessons)
    rows = await session.scalars(
        select(MemoryLink.target_id)
        .join(
            Memory,
            (Memory.tenant_id == MemoryLink.tenant_id) & (Memory.id == MemoryLink.source_id),
        )
        .where(
            MemoryLink.tenant_id == tenant_of(session),
            MemoryLink.target_id.in_(lessons),
            MemoryLink.relation == "derived_from",
            MemoryLink.target_kind == "memory",
            Memory.scope == scope,
        )
    )
    known = set(rows)
    return [lesson for lesson in lessons if lesson not in known]
