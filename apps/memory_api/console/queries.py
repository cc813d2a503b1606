"""Statements on console sessions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import delete, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.auth.queries import tenant_is_active
from apps.memory_api.auth.tables import ApiKeyRow
from apps.memory_api.console.tables import ConsoleSessionRow
from apps.memory_api.core.db import current_tenant_id


async def get_valid_session(
    session: AsyncSession, secret_hash: bytes, idle_since: datetime
) -> tuple[ConsoleSessionRow, ApiKeyRow] | None:
    """Get a session by the hash of its token, with its API key. None if it has expired, was not
    used after `idle_since`, or its key is revoked or expired or the tenant is not active.
    """
    key = ApiKeyRow
    statement = (
        select(ConsoleSessionRow, key)
        .join(
            key,
            (key.tenant_id == ConsoleSessionRow.tenant_id) & (key.id == ConsoleSessionRow.key_id),
        )
        .where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
            ConsoleSessionRow.expires_at > func.now(),
            ConsoleSessionRow.last_used_at > idle_since,
            key.revoked_at.is_(None),
            key.expires_at.is_(None) | (key.expires_at > func.now()),
            tenant_is_active(literal(current_tenant_id(session))),
        )
    )
    row = (await session.execute(statement)).first()
    return None if row is None else (row[0], row[1])


async def mark_session_used(session: AsyncSession, secret_hash: bytes) -> None:
    await session.execute(
        update(ConsoleSessionRow)
        .where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
        )
        .values(last_used_at=func.now())
    )


async def delete_session(session: AsyncSession, secret_hash: bytes) -> None:
    await session.execute(
        delete(ConsoleSessionRow).where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            ConsoleSessionRow.secret_hash == secret_hash,
        )
    )


async def delete_ended_sessions(session: AsyncSession, idle_since: datetime) -> None:
    """Delete the sessions of the tenant that can no longer be used."""
    await session.execute(
        delete(ConsoleSessionRow).where(
            ConsoleSessionRow.tenant_id == current_tenant_id(session),
            or_(
                ConsoleSessionRow.expires_at <= func.now(),
                ConsoleSessionRow.last_used_at <= idle_since,
            ),
        )
    )
