"""Statements on published reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import defer

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict, NotFound
from memory_api.core.ids import new_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.evaluation_reports.tables import EvaluationReportRow

MAX_REPORTS = 1_000
"""Reports of one tenant."""


async def upsert_report(session: AsyncSession, values: Mapping[str, Any]) -> EvaluationReportRow:
    """Store a report, or replace the one of the same evaluation. Raises `Conflict` if the tenant
    has more than `MAX_REPORTS`.
    """
    await acquire_tenant_lock(session, "evaluation_reports")
    row, tenant_id = EvaluationReportRow, current_tenant_id(session)
    added = insert(row).values(tenant_id=tenant_id, id=new_id(), **values)
    changed = {name: added.excluded[name] for name in (*values, "published_at")}
    key = ["tenant_id", "project_id", "evaluation_id"]
    statement = added.on_conflict_do_update(index_elements=key, set_=changed).returning(row)
    stored = (await session.scalars(statement)).one()
    count = select(func.count()).select_from(row).where(row.tenant_id == tenant_id)
    if (await session.execute(count)).scalar_one() > MAX_REPORTS:
        raise Conflict(f"A tenant has at most {MAX_REPORTS:,} reports. Delete one first.")
    return stored


async def list_reports(
    session: AsyncSession, project_id: str, *, cursor: Cursor | None, limit: int
) -> Sequence[EvaluationReportRow]:
    """Newest evaluation first, without `report`; one row more than `limit` when there is a next
    page.
    """
    row = EvaluationReportRow
    query = select(row).where(
        row.tenant_id == current_tenant_id(session), row.project_id == project_id
    )
    query = keyset_page(query, row.created_at, row.id, cursor).options(defer(row.report))
    return (await session.scalars(query.limit(limit + 1))).all()


async def require_report(session: AsyncSession, report_id: UUID) -> EvaluationReportRow:
    """Raises `NotFound`."""
    row = await session.get(EvaluationReportRow, (current_tenant_id(session), report_id))
    if row is None:
        raise NotFound("Report not found.")
    return row
