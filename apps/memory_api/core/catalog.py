"""The tables with rows of tenants, from the catalog of the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_column, load_statement


async def list_tenant_tables(session: AsyncSession) -> Sequence[str]:
    """The tables with a column `tenant_id`. A table comes before those that its rows refer to."""
    return await fetch_column(session, load_statement("core/catalog.sql", "tenant_tables"), {})
