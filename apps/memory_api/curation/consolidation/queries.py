"""Statements of the consolidation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import String, and_, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.curation.queries import WITNESSED, select_playbooks
from memory_api.memories.tables import MemoryLinkRow
from memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow
from memory_api.traces.tables import TraceRow


async def list_playbooks_to_consolidate(
    session: AsyncSession, min_growth: int, max_age: timedelta, min_interval: timedelta
) -> Sequence[PlaybookRow]:
    """Playbooks that changed since their last consolidation, and that have grown by `min_growth`
    bullets, have a token budget, or were not consolidated for `max_age`; none that was consolidated
    within `min_interval`.
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
            or_(
                growth >= min_growth,
                PlaybookRow.token_budget.is_not(None),
                consolidated_at < func.now() - max_age,
            ),
            or_(row.consolidated_at.is_(None), row.consolidated_at < func.now() - min_interval),
        )
    )
    return rows.all()


async def count_tasks(session: AsyncSession, bullet_ids: Collection[UUID]) -> dict[UUID, int]:
    """Bullet → the number of tasks whose traces taught it. A trace without a task is one of its
    own.
    """
    if not bullet_ids:
        return {}
    tenant_id = current_tenant_id(session)
    task = func.coalesce(TraceRow.task_key, cast(TraceRow.id, String))
    query = (
        select(MemoryLinkRow.source_id, func.count(func.distinct(task)))
        .join(
            TraceRow,
            and_(TraceRow.tenant_id == tenant_id, TraceRow.id == MemoryLinkRow.target_id),
        )
        .where(
            MemoryLinkRow.tenant_id == tenant_id,
            MemoryLinkRow.source_id.in_(list(bullet_ids)),
            MemoryLinkRow.relation == WITNESSED,
            MemoryLinkRow.target_kind == "trace",
        )
        .group_by(MemoryLinkRow.source_id)
    )
    return dict((await session.execute(query)).all())
