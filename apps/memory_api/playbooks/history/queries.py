"""Statements that read or compare versions of a playbook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import asyncpg_connection, current_tenant_id
from memory_api.core.resources import read_sql
from memory_api.playbooks.bullet_rows import BulletRecord
from memory_api.playbooks.queries import BULLETS_AS_OF

FIRST_ACTIVE_BULLETS = f"""
select b.* from ({BULLETS_AS_OF}) b where b.status is null order by b.position, b.seq limit $5
"""
DIFFERENT_BULLETS = read_sql("playbooks/queries.sql", "different_bullets")


@dataclass(frozen=True)
class DifferentBullets:
    """IDs of bullets that differ between two versions, by key. `count` includes those beyond the
    limit.
    """

    ids: Sequence[UUID]
    count: int


async def list_first_active_bullets(
    session: AsyncSession, scope: int, version: int, limit: int
) -> Sequence[BulletRecord]:
    """The first active bullets of a version, by position and then by age."""
    await session.flush()
    driver = await asyncpg_connection(session)
    arguments = (current_tenant_id(session), scope, version, None, limit)
    return await driver.fetch(FIRST_ACTIVE_BULLETS, *arguments, record_class=BulletRecord)


async def find_different_bullets(
    session: AsyncSession, scope: int, first: int, last: int, limit: int | None
) -> DifferentBullets:
    """The bullets that differ between two versions, in any order; at most `limit` of them."""
    await session.flush()
    driver = await asyncpg_connection(session)
    arguments = (current_tenant_id(session), scope, first, last, limit)
    rows = await driver.fetch(DIFFERENT_BULLETS, *arguments)
    return DifferentBullets([row["id"] for row in rows], rows[0]["difference_count"] if rows else 0)
