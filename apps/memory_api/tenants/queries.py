"""Statements on the audit log and on projects."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.statements import fetch_column, load_statement
from memory_api.tenants.tables import AuditEventRow

LIST_PROJECTS = load_statement("tenants/queries.sql", "list_projects")


async def list_audit_events(
    session: AsyncSession, *, action: str | None, cursor: Cursor | None, limit: int
) -> Sequence[AuditEventRow]:
    """Up to `limit + 1` events, newest first."""
    query = select(AuditEventRow).where(AuditEventRow.tenant_id == current_tenant_id(session))
    if action is not None:
        query = query.where(AuditEventRow.action == action)
    query = keyset_page(query, AuditEventRow.created_at, AuditEventRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def list_projects(session: AsyncSession) -> set[str]:
    """The projects that have memories or traces."""
    found = await fetch_column(session, LIST_PROJECTS, {"tenant": current_tenant_id(session)})
    return set(found)
