"""Statements on tenants and keys. All but `create_tenant` of the owner run bound to one tenant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.ids import new_id
from apps.memory_api.tenants.identity import Access, NewKey, make_key
from apps.memory_api.tenants.tables import ApiKey, Tenant


async def create_tenant(session: AsyncSession, slug: str) -> bool:
    """Make the bound tenant's row; False when it was there already."""
    statement = (
        insert(Tenant)
        .values(id=tenant_of(session), slug=slug)
        .on_conflict_do_nothing()
        .returning(Tenant.id)
    )
    return (await session.scalar(statement)) is not None


async def get_tenant(session: AsyncSession) -> Tenant | None:
    return await session.get(Tenant, tenant_of(session))


async def is_tenant(session: AsyncSession) -> bool:
    """Whether the bound tenant is there: any role may ask."""
    found = await session.scalar(select(Tenant.id).where(Tenant.id == tenant_of(session)))
    return found is not None


async def active_tenants(session: AsyncSession) -> Sequence[UUID]:
    """Every active tenant's id: as the worker or the owner; anybody else sees at most itself."""
    rows = await session.scalars(
        select(Tenant.id).where(Tenant.status == "active").order_by(Tenant.id)
    )
    return rows.all()


async def create_key(
    session: AsyncSession,
    *,
    scopes: Sequence[Access],
    name: str = "",
    project_id: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, NewKey]:
    key = make_key(tenant_of(session))
    row = ApiKey(
        tenant_id=tenant_of(session),
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


async def find_live_key(session: AsyncSession, secret_hash: bytes) -> ApiKey | None:
    """The key with this secret if it is neither revoked nor expired, and its tenant is active."""
    return await session.scalar(
        select(ApiKey)
        .join(Tenant, Tenant.id == ApiKey.tenant_id)
        .where(
            ApiKey.tenant_id == tenant_of(session),
            ApiKey.secret_hash == secret_hash,
            ApiKey.revoked_at.is_(None),
            (ApiKey.expires_at.is_(None)) | (ApiKey.expires_at > func.now()),
            Tenant.status == "active",
        )
    )


async def touch_key(session: AsyncSession, key: ApiKey) -> None:
    """Remember that a key was used, at most once a minute."""
    now = datetime.now(UTC)
    if key.last_used_at is None or now - key.last_used_at > timedelta(minutes=1):
        key.last_used_at = now


async def list_keys(session: AsyncSession) -> Sequence[ApiKey]:
    rows = await session.scalars(
        select(ApiKey).where(ApiKey.tenant_id == tenant_of(session)).order_by(ApiKey.id)
    )
    return rows.all()


async def revoke_key(session: AsyncSession, key_id: UUID) -> bool:
    """True when there is such a key; revoking twice keeps the first time."""
    found = await session.scalar(
        update(ApiKey)
        .where(ApiKey.tenant_id == tenant_of(session), ApiKey.id == key_id)
        .values(revoked_at=func.coalesce(ApiKey.revoked_at, func.now()))
        .returning(ApiKey.id)
    )
    return found is not None
