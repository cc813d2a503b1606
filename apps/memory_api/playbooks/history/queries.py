"""Statements that read or compare versions of a playbook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.resources import read_sql
from memory_api.core.statements import StatementRow, fetch_rows, load_statement, parse_statement
from memory_api.memories.tables import MemoryRevisionRow

FIRST_ACTIVE_BULLETS = parse_statement(
    f"select b.* from ({read_sql('playbooks/queries.sql', 'bullets_as_of')}) b"
    " where b.status is null order by b.position, b.seq limit :limit"
)
DIFFERENT_BULLETS = load_statement("playbooks/queries.sql", "different_bullets")


@dataclass(frozen=True)
class DifferentBullets:
    """IDs of bullets that differ between two versions, by key. `count` includes those beyond the
    limit.
    """

    ids: Sequence[UUID]
    count: int


async def list_first_active_bullets(
    session: AsyncSession, scope: int, version: int, limit: int
) -> Sequence[StatementRow]:
    parameters = {"scope": scope, "version": version, "ids": None, "limit": limit}
    return await fetch_rows(session, FIRST_ACTIVE_BULLETS, parameters)


async def find_different_bullets(
    session: AsyncSession, scope: int, first: int, last: int, limit: int | None
) -> DifferentBullets:
    """The bullets that differ between two versions, in any order; at most `limit` of them."""
    parameters = {"scope": scope, "first": first, "last": last, "limit": limit}
    rows = await fetch_rows(session, DIFFERENT_BULLETS, parameters)
    return DifferentBullets([row.id for row in rows], rows[0].difference_count if rows else 0)


async def list_changed_bullets(
    session: AsyncSession, scope: int, first: int, last: int, per_version: int
) -> Sequence[Any]:
    """The bullets that each version from `first` to `last` changed, at most `per_version` of each:
    of `playbook_version`, `key`, `change_type`, and `when_to_use` and `content` after the change.
    """
    row = MemoryRevisionRow
    number = func.row_number().over(partition_by=row.playbook_version, order_by=row.memory_id)
    columns = (row.playbook_version, row.key, row.change_type, row.when_to_use, row.content)
    changed = (
        select(*columns, number.label("number"))
        .where(
            row.tenant_id == current_tenant_id(session),
            row.scope_id == scope,
            row.playbook_version.between(first, last),
        )
        .subquery()
    )
    statement = (
        select(changed)
        .where(changed.c.number <= per_version)
        .order_by(changed.c.playbook_version, changed.c.number)
    )
    return (await session.execute(statement)).all()
