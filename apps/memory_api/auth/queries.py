"""Statements on tenants and API keys. The session must be bound to a tenant, except for
`list_active_tenant_ids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from memory_api.auth.identity import GeneratedKey, KeyScope, generate_key
from memory_api.auth.tables import ApiKeyRow, TenantRow
from memory_api.core.db import current_tenant_id
from memory_api.core.errors import Conflict
from memory_api.core.ids import new_id


async def create_tenant(session: AsyncSession, slug: str) -> bool:
    """Insert the row of the session's tenant. Returns False if it exists. Raises `Conflict` for the
    name of an erased tenant. Needs the owner role.
    """
    statement = (
        insert(TenantRow)
        .values(id=current_tenant_id(session), slug=slug)
        .on_conflict_do_nothing()
        .returning(TenantRow.id)
    )
    if (await session.scalar(statement)) is not None:
        return True
    tenant = await get_tenant(session)
    if tenant is not None and tenant.status == "erased":
        raise Conflict(f"Tenant {slug} was erased. Its name cannot be used again.")
    return False


async def get_tenant(session: AsyncSession) -> TenantRow | None:
    return await session.get(TenantRow, current_tenant_id(session))


async def require_tenant_slug(session: AsyncSession) -> str:
    """The name of the session's tenant."""
    statement = select(TenantRow.slug).where(TenantRow.id == current_tenant_id(session))
    return (await session.execute(statement)).scalar_one()


async def tenant_exists(session: AsyncSession) -> bool:
    """Whether the session's tenant exists. Any database role may call it."""
    tenant_id = await session.scalar(
        select(TenantRow.id).where(TenantRow.id == current_tenant_id(session))
    )
    return tenant_id is not None


def tenant_is_active(
    tenant_id: ColumnElement[UUID] | InstrumentedAttribute[Any],
) -> ColumnElement[bool]:
    """The condition that a tenant exists and is not suspended."""
    return (
        select(TenantRow.id).where(TenantRow.id == tenant_id, TenantRow.status == "active").exists()
    )


async def set_tenant_status(session: AsyncSession, status: str) -> TenantRow | None:
    """Set the status of the session's tenant, unless it was erased. None if it does not exist."""
    return await session.scalar(
        update(TenantRow)
        .where(TenantRow.id == current_tenant_id(session), TenantRow.status != "erased")
        .values(status=status)
        .returning(TenantRow)
    )


async def is_tenant_active(session: AsyncSession) -> bool:
    """Whether the session's tenant exists and is not suspended. Any database role may call it."""
    status = await session.scalar(
        select(TenantRow.status).where(TenantRow.id == current_tenant_id(session))
    )
    return status == "active"


async def list_active_tenant_ids(session: AsyncSession) -> Sequence[UUID]:
    """The IDs of all active tenants. Needs the worker or the owner role: for others, row-level
    security hides all tenants but the session's.
    """
    rows = await session.scalars(
        select(TenantRow.id).where(TenantRow.status == "active").order_by(TenantRow.id)
    )
    return rows.all()


async def create_key(
    session: AsyncSession,
    *,
    scopes: Sequence[KeyScope],
    name: str = "",
    project_id: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKeyRow, GeneratedKey]:
    key = generate_key(current_tenant_id(session))
    row = ApiKeyRow(
        tenant_id=current_tenant_id(session),
        id=new_id(),
        name=name,
        secret_hash=key.secret_hash,
        scopes=[s.value for s in scopes],
        project_id=project_id,
        expires_at=expires_at,
    )
    session.add(row)
    await session.flush()
    await session.refresh(row)
    return row, key


async def get_valid_key(session: AsyncSession, secret_hash: bytes) -> ApiKeyRow | None:
    """Get a key by its secret's hash, unless it is revoked or expired or its tenant is inactive."""
    return await session.scalar(
        select(ApiKeyRow)
        .join(TenantRow, TenantRow.id == ApiKeyRow.tenant_id)
        .where(
            ApiKeyRow.tenant_id == current_tenant_id(session),
            ApiKeyRow.secret_hash == secret_hash,
            ApiKeyRow.revoked_at.is_(None),
            (ApiKeyRow.expires_at.is_(None)) | (ApiKeyRow.expires_at > func.now()),
            TenantRow.status == "active",
        )
    )


async def mark_key_used(session: AsyncSession, key: ApiKeyRow) -> None:
    """Set `last_used_at`, at most once a minute."""
    now = datetime.now(UTC)
    if key.last_used_at is None or now - key.last_used_at > timedelta(minutes=1):
        key.last_used_at = now


async def list_keys(
    session: AsyncSession,
    *,
    project_id: str | None = None,
    after: UUID | None = None,
    limit: int | None = None,
) -> Sequence[ApiKeyRow]:
    """API keys by ID, one more than `limit`. With `project_id`, only those bound to the project."""
    query = select(ApiKeyRow).where(ApiKeyRow.tenant_id == current_tenant_id(session))
    if project_id is not None:
        query = query.where(ApiKeyRow.project_id == project_id)
    if after is not None:
        query = query.where(ApiKeyRow.id > after)
    if limit is not None:
        query = query.limit(limit + 1)
    return (await session.scalars(query.order_by(ApiKeyRow.id))).all()


async def get_api_key(session: AsyncSession, key_id: UUID) -> ApiKeyRow | None:
    return await session.scalar(
        select(ApiKeyRow).where(
            ApiKeyRow.tenant_id == current_tenant_id(session), ApiKeyRow.id == key_id
        )
    )


async def revoke_key(session: AsyncSession, key_id: UUID) -> bool:
    """Revoke a key. Returns False if there is no such key. Revoking again does not change
    `revoked_at`.
    """
    revoked_id = await session.scalar(
        update(ApiKeyRow)
        .where(ApiKeyRow.tenant_id == current_tenant_id(session), ApiKeyRow.id == key_id)
        .values(revoked_at=func.least(ApiKeyRow.revoked_at, func.now()))
        .returning(ApiKeyRow.id)
    )
    return revoked_id is not None
