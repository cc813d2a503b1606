"""Statements of the consolidation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import and_, func, or_
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.curation.queries import select_playbooks
from apps.memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow


async def list_playbooks_to_consolidate(
    session: AsyncSession, min_growth: int, max_age: timedelta, min_interval: timedelta
) -> Sequence[PlaybookRow]:
    """Playbooks that changed since their last consolidation, and that have grown by `min_growth`
    bullets or were not consolidated for `max_age`; none that was consolidated within
    `min_interval`.
    """
    row = PlaybookCurationRow
    consolidated_at = func.coalesce(row.consolidated_at, PlaybookRow.created_at)
    growth = PlaybookRow.active_count - func.coalesce(row.consolidated_count, 0)
    rows = await session.scalars(
        select_playbooks(session)
        .outerjoin(
            row,
            and_(row.tenant_id == PlaybookRow.tenant_id, row.scope_id == PlaybookRow.scope_id),
        )
        .where(
            PlaybookRow.version > func.coalesce(row.consolidated_version, 0),
            or_(growth >= min_growth, consolidated_at < func.now() - max_age),
            or_(row.consolidated_at.is_(None), row.consolidated_at < func.now() - min_interval),
        )
    )
    return rows.all()
