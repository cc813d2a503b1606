"""Statements on retention policies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.maintenance.tables import RetentionPolicyRow


async def list_policies(session: AsyncSession) -> Sequence[RetentionPolicyRow]:
    """By project; the policy of all other projects comes first."""
    rows = await session.scalars(
        select(RetentionPolicyRow)
        .where(RetentionPolicyRow.tenant_id == current_tenant_id(session))
        .order_by(RetentionPolicyRow.project_id)
    )
    return rows.all()


async def replace_policies(session: AsyncSession, rows: Iterable[RetentionPolicyRow]) -> None:
    await acquire_tenant_lock(session, "retention")
    tenant = current_tenant_id(session)
    await session.execute(delete(RetentionPolicyRow).where(RetentionPolicyRow.tenant_id == tenant))
    session.add_all(rows)
    await session.flush()
