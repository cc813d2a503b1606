"""What was learned from a trace, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from memory_api.core.db import current_tenant_id
from memory_api.curation.tables import CuratedLessonRow
from memory_api.memories.tables import MemoryRow


async def list_decisions_on(session: AsyncSession, memory_ids: Sequence[UUID]) -> Sequence[Any]:
    """The decisions on these lessons, in any playbook: `memory_id`, `decision`, `reason`, and the
    `key` and `status` of the bullet, if there is one.
    """
    if not memory_ids:
        return []
    row, bullet = CuratedLessonRow, aliased(MemoryRow)
    tenant_id = current_tenant_id(session)
    query = (
        select(row.memory_id, row.decision, row.reason, bullet.key, bullet.status)
        .outerjoin(bullet, and_(bullet.tenant_id == tenant_id, bullet.id == row.bullet_id))
        .where(row.tenant_id == tenant_id, row.memory_id.in_(memory_ids))
        .order_by(row.updated_at)
    )
    return (await session.execute(query)).all()
