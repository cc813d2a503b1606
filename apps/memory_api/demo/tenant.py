"""The tenant of the demo: created for it, and removed with all its rows and database logins."""

from __future__ import annotations

import asyncio
from uuid import UUID

from sqlalchemy import delete, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth import queries
from memory_api.auth.identity import KeyScope
from memory_api.auth.tables import TenantRow
from memory_api.core.catalog import list_tenant_tables
from memory_api.core.db import Sessions
from memory_api.core.errors import Conflict
from memory_api.core.ids import to_tenant_id
from memory_api.core.statements import fetch_rows, load_statement

KEY_NAME = "hansei demo"
MAX_ATTEMPTS = 5
"""How often a tenant's rows are deleted until none is left."""


async def create_demo_tenant(sessions: Sessions, name: str) -> tuple[UUID, UUID, str]:
    """The tenant's ID, and an admin key with its ID. Raises `Conflict` if the tenant exists."""
    tenant_id = to_tenant_id(name)
    async with sessions.for_tenant(tenant_id) as session:
        if not await queries.create_tenant(session, name):
            raise Conflict(
                f"Tenant {name} exists. The demo needs a tenant of its own:"
                f" remove the last demo with `hansei demo --remove --tenant {name}`, or"
                " pass another name with --tenant."
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
    erased tenant. The tenant is suspended first, so that no work begins. What began before may
    still store rows: the deletion is repeated until it finds none.
    """
    async with sessions.for_tenant(tenant_id) as session:
        suspended = update(TenantRow).where(TenantRow.id == tenant_id).values(status="suspended")
        await session.execute(suspended)
    for attempt in range(MAX_ATTEMPTS):
        await asyncio.sleep(attempt)
        try:
            async with sessions.for_tenant(tenant_id) as session:
                count = await _delete_rows(session, tenant_id)
        except IntegrityError:  # a new row refers to one that was to be deleted
            continue
        if count == 0:
            break
    else:
        raise Conflict("The service still stores rows of the tenant. Run the command again.")
    async with sessions.for_tenant(tenant_id) as session:
        await session.execute(delete(TenantRow).where(TenantRow.id == tenant_id))


async def _delete_rows(session: AsyncSession, tenant_id: UUID) -> int:
    """Delete the logins and the rows of the tenant. Returns the number of rows."""
    parameters = {"tenant": tenant_id}
    await fetch_rows(session, load_statement("demo/demo.sql", "drop_logins"), parameters)
    await fetch_rows(session, load_statement("demo/demo.sql", "delete_tickets"), parameters)
    count = 0
    for table in await list_tenant_tables(session):
        deletion = f"delete from {table} where tenant_id = :tenant returning 1"
        counted = text(f"with deleted as ({deletion}) select count(*) from deleted")
        count += await session.scalar(counted, parameters) or 0
    return count
