"""Idempotency keys: the first answer to (tenant, route, key) is kept for a day and given again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.errors import InProgress, Invalid
from apps.memory_api.core.ids import same_id
from apps.memory_api.jobs.tables import IdempotencyKey

KEPT = timedelta(hours=24)
LEASE = timedelta(seconds=60)


class KeyReused(Invalid):
    """This Idempotency-Key was used with another body."""

    code = "idempotency_key_reused"


@dataclass(frozen=True)
class Remembered:
    """An answer given before."""

    status: int
    body: Any
    headers: dict[str, str]


@dataclass(frozen=True)
class Reserved:
    """Go ahead. Whoever takes the key over from a process that died goes ahead with the same, and
    so knows by `trace_id` what that one had stored.
    """

    route: str
    key: str
    since: datetime

    def trace_id(self, number: int = 0) -> UUID:
        """The id of the n-th trace that this request stores."""
        return same_id(self.since, self.route, self.key, number)


async def begin(
    session: AsyncSession, route: str, key: str, body_hash: bytes
) -> Remembered | Reserved:
    """Reserve a key, or find what it was answered. Raises `KeyReused` for another body,
    `InProgress` while the first is at work.
    """
    now = datetime.now(UTC)
    made = await session.scalar(
        insert(IdempotencyKey)
        .values(
            tenant_id=tenant_of(session),
            route=route,
            key=key,
            body_hash=body_hash,
            lease_until=now + LEASE,
        )
        .on_conflict_do_nothing()
        .returning(IdempotencyKey.created_at)
    )
    if made is not None:
        return Reserved(route, key, made)
    row = await session.scalar(
        select(IdempotencyKey)
        .where(
            IdempotencyKey.tenant_id == tenant_of(session),
            IdempotencyKey.route == route,
            IdempotencyKey.key == key,
        )
        .with_for_update()
    )
    if row is None:  # released by the first caller between the two statements
        raise InProgress
    if row.created_at < now - KEPT:
        row.body_hash, row.status, row.response, row.headers = body_hash, None, None, None
        row.created_at, row.lease_until = now, now + LEASE
        return Reserved(route, key, now)
    if row.body_hash != body_hash:
        raise KeyReused(field="Idempotency-Key")
    if row.status is not None:
        return Remembered(row.status, row.response, row.headers or {})
    if row.lease_until is not None and row.lease_until > now:
        raise InProgress(retry_after=max(1, round((row.lease_until - now).total_seconds())))
    row.lease_until = now + LEASE
    return Reserved(route, key, row.created_at)


async def extend(session: AsyncSession, route: str, key: str) -> None:
    """Hold a key for longer: its request is still at work."""
    await session.execute(
        update(IdempotencyKey)
        .where(
            IdempotencyKey.tenant_id == tenant_of(session),
            IdempotencyKey.route == route,
            IdempotencyKey.key == key,
            IdempotencyKey.status.is_(None),
        )
        .values(lease_until=datetime.now(UTC) + LEASE)
    )


async def remember(session: AsyncSession, route: str, key: str, answer: Remembered) -> None:
    row = await session.get(IdempotencyKey, (tenant_of(session), route, key))
    if row is not None:
        row.status, row.response, row.headers = answer.status, answer.body, answer.headers
        row.lease_until = None


async def release(session: AsyncSession, route: str, key: str) -> None:
    """Forget a key whose request failed, so that it can be tried again. One that has its answer
    after all (the connection broke while it was committed) stays.
    """
    await session.execute(
        delete(IdempotencyKey).where(
            IdempotencyKey.tenant_id == tenant_of(session),
            IdempotencyKey.route == route,
            IdempotencyKey.key == key,
            IdempotencyKey.status.is_(None),
        )
    )
