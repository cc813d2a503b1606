"""Idempotency keys: the response to (tenant, route, key) is stored for 24 hours and replayed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    ForeignKeyConstraint,
    Index,
    Uuid,
    delete,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, insert
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


class ResponseMentionRow(Base):
    """An ID that a stored response names."""

    __tablename__ = "response_mentions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "route", "key"],
            ["idempotency_keys.tenant_id", "idempotency_keys.route", "idempotency_keys.key"],
            ondelete="cascade",
        ),
        Index("response_mentions_mentioned_id_idx", "tenant_id", "mentioned_id"),
    )

    tenant_id: Mapped[TenantId]
    route: Mapped[Str] = mapped_column(primary_key=True)
    key: Mapped[Str] = mapped_column(primary_key=True)
    mentioned_id: Mapped[UUID] = mapped_column(primary_key=True)


RETENTION = timedelta(hours=24)
LEASE = timedelta(seconds=60)
"""After this time without an extension, another request may take the key over."""


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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


async def set_lease(session: AsyncSession, route: str, key: str, lease: timedelta = LEASE) -> None:
    """Extend the lease of a key whose request is still executed. With 0, end that of a request that
    failed and may have committed something: a repetition gets the same reservation, and finds what
    was committed.
    """
    await session.execute(
        update(IdempotencyKeyRow)
        .where(IdempotencyKeyRow.tenant_id == current_tenant_id(session), *_is_reserved(route, key))
        .values(lease_until=func.now() + lease)
    )


async def store_response(
    session: AsyncSession, route: str, key: str, response: StoredResponse
) -> None:
    """Store the response of a request, with the IDs in it."""
    tenant_id = current_tenant_id(session)
    stored = await session.scalar(
        update(IdempotencyKeyRow)
        .where(
            IdempotencyKeyRow.tenant_id == tenant_id,
            IdempotencyKeyRow.route == route,
            IdempotencyKeyRow.key == key,
        )
        .values(
            response_status=response.status,
            response_body=response.body,
            response_headers=response.headers,
            lease_until=None,
        )
        .returning(IdempotencyKeyRow.key)
    )
    ids = {UUID(found) for found in _UUID.findall(json.dumps(response.body))}
    if stored is None or not ids:
        return
    await session.execute(
        insert(ResponseMentionRow)
        .from_select(
            ["tenant_id", "route", "key", "mentioned_id"],
            select(
                literal(tenant_id),
                literal(route),
                literal(key),
                func.unnest(literal(list(ids), ARRAY(Uuid()))),
            ),
        )
        .on_conflict_do_nothing()
    )


async def release_key(session: AsyncSession, route: str, key: str) -> None:
    """Delete the reservation of a request that failed, so that it can be repeated. A key with a
    stored response stays (the connection may break while the response is committed).
    """
    await session.execute(
        delete(IdempotencyKeyRow).where(
            IdempotencyKeyRow.tenant_id == current_tenant_id(session), *_is_reserved(route, key)
        )
    )


def _is_reserved(route: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return (
        IdempotencyKeyRow.route == route,
        IdempotencyKeyRow.key == key,
        IdempotencyKeyRow.response_status.is_(None),
    )
