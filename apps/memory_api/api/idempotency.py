"""Idempotency keys: the response to (tenant, route, key) is stored for 24 hours and replayed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Index, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from memory_api.core.db import Base, Now, OptJson, OptTime, Str, TenantId, current_tenant_id
from memory_api.core.errors import InvalidRequest, RequestInProgress
from memory_api.core.ids import derived_id


class IdempotencyKeyRow(Base):
    """A reserved `Idempotency-Key`, with the stored response once the request is done."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("idempotency_keys_created_at_idx", "tenant_id", "created_at"),)

    tenant_id: Mapped[TenantId]
    route: Mapped[Str] = mapped_column(primary_key=True)
    key: Mapped[Str] = mapped_column(primary_key=True)
    body_hash: Mapped[bytes]
    response_status: Mapped[int | None]
    response_body: Mapped[OptJson]
    response_headers: Mapped[OptJson]
    lease_until: Mapped[OptTime]
    created_at: Mapped[Now]


RETENTION = timedelta(hours=24)
LEASE = timedelta(seconds=60)
"""After this time without an extension, another request may take the key over."""


class IdempotencyKeyReused(InvalidRequest):
    """`Idempotency-Key` was used before with another body. Use a new key."""

    code = "idempotency_key_reused"


@dataclass(frozen=True)
class StoredResponse:
    """The response of an earlier request with the same key."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class IdempotencyReservation:
    """The right to execute a request. A request that takes the key over from a process that died
    gets the same `since`, and so the same `trace_id`, and finds what that process stored.
    """

    route: str
    key: str
    since: datetime

    def trace_id(self, number: int = 0) -> UUID:
        """The ID of the n-th trace that this request stores."""
        return derived_id(self.since, self.route, self.key, number)


async def reserve_key(
    session: AsyncSession, route: str, key: str, body_hash: bytes
) -> StoredResponse | IdempotencyReservation:
    """Reserve a key, or return the response stored under it. Raises `IdempotencyKeyReused` for
    another body, `RequestInProgress` while the first request is executed.
    """
    created_at = await session.scalar(
        insert(IdempotencyKeyRow)
        .values(
            tenant_id=current_tenant_id(session),
            route=route,
            key=key,
            body_hash=body_hash,
            lease_until=func.now() + LEASE,  # the clock of the database, which all processes share
        )
        .on_conflict_do_nothing()
        .returning(IdempotencyKeyRow.created_at)
    )
    if created_at is not None:
        return IdempotencyReservation(route, key, created_at)
    found = await session.execute(
        select(IdempotencyKeyRow, func.now())
        .where(
            IdempotencyKeyRow.tenant_id == current_tenant_id(session),
            IdempotencyKeyRow.route == route,
            IdempotencyKeyRow.key == key,
        )
        .with_for_update()
    )
    stored = found.one_or_none()
    if stored is None:  # released by the first request between the two statements
        raise RequestInProgress
    row, now = stored[0], stored[1]
    if row.created_at < now - RETENTION:
        row.body_hash, row.response_status = body_hash, None
        row.response_body = row.response_headers = None
        row.created_at, row.lease_until = now, now + LEASE
        return IdempotencyReservation(route, key, now)
    if row.body_hash != body_hash:
        raise IdempotencyKeyReused(field="Idempotency-Key")
    if row.response_status is not None:
        return StoredResponse(row.response_status, row.response_body, row.response_headers or {})
    if row.lease_until is not None and row.lease_until > now:
        raise RequestInProgress(retry_after=max(1, round((row.lease_until - now).total_seconds())))
    row.lease_until = now + LEASE
    return IdempotencyReservation(route, key, row.created_at)


async def extend_reservation(session: AsyncSession, route: str, key: str) -> None:
    """Extend the lease of a key whose request is still executed."""
    await session.execute(
        update(IdempotencyKeyRow)
        .where(
            IdempotencyKeyRow.tenant_id == current_tenant_id(session),
            IdempotencyKeyRow.route == route,
            IdempotencyKeyRow.key == key,
            IdempotencyKeyRow.response_status.is_(None),
        )
        .values(lease_until=func.now() + LEASE)
    )


async def store_response(
    session: AsyncSession, route: str, key: str, response: StoredResponse
) -> None:
    row = await session.get(IdempotencyKeyRow, (current_tenant_id(session), route, key))
    if row is not None:
        row.response_status, row.response_body = response.status, response.body
        row.response_headers = response.headers
        row.lease_until = None


async def release_key(session: AsyncSession, route: str, key: str) -> None:
    """Delete the reservation of a request that failed, so that it can be repeated. A key with a
    stored response stays (the connection may break while the response is committed).
    """
    await session.execute(
        delete(IdempotencyKeyRow).where(
            IdempotencyKeyRow.tenant_id == current_tenant_id(session),
            IdempotencyKeyRow.route == route,
            IdempotencyKeyRow.key == key,
            IdempotencyKeyRow.response_status.is_(None),
        )
    )
