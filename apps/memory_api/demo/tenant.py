"""The tenant of the demo: created for it, refused if it has data, and removed with all its rows."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import delete, select, text

from memory_api.auth import queries
from memory_api.auth.identity import KeyScope
from memory_api.auth.tables import TenantRow
from memory_api.core.db import Sessions
from memory_api.core.errors import Conflict
from memory_api.core.ids import to_tenant_id
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.demo.catalog import load_tables
from memory_api.memories.tables import ScopeRow
from memory_api.runs.tables import RunRow
from memory_api.traces.tables import TraceRow

KEY_NAME = "hansei demo"


async def create_demo_tenant(sessions: Sessions, name: str) -> tuple[UUID, UUID, str]:
    """The tenant's ID, and an admin key with its ID. Raises `Conflict` if the tenant has data."""
    tenant_id = to_tenant_id(name)
    async with sessions.for_tenant(tenant_id) as session:
        is_new = await queries.create_tenant(session, name)
        if not is_new:
            for row in (TraceRow, RunRow):
                if await session.scalar(select(row.id).limit(1)) is not None:
                    raise Conflict(
                        f"Tenant {name} has data. The demo needs a tenant of its own:"
                        " remove the last demo with `hansei demo --remove`, or pass another"
                        " name with --tenant."
                    )
        row, key = await queries.create_key(session, scopes=[KeyScope.ADMIN], name=KEY_NAME)
        return tenant_id, row.id, key.text


async def is_demo(sessions: Sessions, tenant_id: UUID) -> bool:
    """Whether `create_demo_tenant` made the tenant's first key."""
    async with sessions.for_tenant(tenant_id) as session:
        keys = await queries.list_keys(session)
    return any(key.name == KEY_NAME for key in keys)


async def remove_tenant(sessions: Sessions, tenant_id: UUID) -> None:
    """Delete all rows of a tenant, and the tenant. Its name may be used again, unlike that of an
    erased tenant. Transactions that are storing a memory of the tenant end first; later ones fail.
    """
    parameters = {"tenant": tenant_id}
    async with sessions.for_tenant(tenant_id) as session:
        for rows in (
            select(TenantRow).where(TenantRow.id == tenant_id),
            select(ScopeRow).where(ScopeRow.tenant_id == tenant_id),
        ):
            await session.execute(rows.with_for_update())
        await fetch_rows(session, load_statement("demo/demo.sql", "delete_tickets"), parameters)
        for table in await load_tables(session):
            await session.execute(
                text(f"delete from {table} where tenant_id = :tenant"), parameters
            )
        await session.execute(delete(TenantRow).where(TenantRow.id == tenant_id))
