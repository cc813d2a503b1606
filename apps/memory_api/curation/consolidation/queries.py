"""Statements of the consolidation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import String, and_, cast, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.curation.queries import WITNESSED, select_playbooks
from memory_api.memories.tables import MemoryLinkRow
from memory_api.playbooks.tables import PlaybookCurationRow, PlaybookRow
from memory_api.traces.tables import TraceRow


async def list_changed_playbooks(
    session: AsyncSession,
) -> Sequence[tuple[PlaybookRow, PlaybookCurationRow | None]]:
    """Playbooks that changed since their last consolidation."""
    row = PlaybookCurationRow
    is_same = and_(row.tenant_id == PlaybookRow.tenant_id, row.scope_id == PlaybookRow.scope_id)
    query = select_playbooks(session).add_columns(row).outerjoin(row, is_same)
    has_changed = PlaybookRow.version > func.coalesce(row.consolidated_version, 0)
    rows = await session.execute(query.where(has_changed))
    return [(playbook, curation) for playbook, curation in rows]


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
