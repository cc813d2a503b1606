"""What is kept for a time only goes in batches, each a transaction, so that nobody waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import TextClause

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.jobs.idempotency import KEPT
from apps.memory_api.runtime import Runtime

SERVINGS = load(__file__, "old_servings.sql")
KEYS = load(__file__, "old_keys.sql")
RESERVATIONS = load(__file__, "old_reservations.sql")
COUNTED = timedelta(days=32)
"""A month and a day: the longest that a reservation counts."""
BATCH = 5_000
MOST = 100
"""Batches of one round of upkeep; the next goes on."""


async def forget_servings(runtime: Runtime, tenant_id: UUID) -> int:
    """Delete what was handed out longer ago than HANSEI_SERVINGS_DAYS; answers how many."""
    kept = timedelta(days=runtime.settings.servings_days)
    return await _forget(runtime, tenant_id, SERVINGS, kept)


async def forget_keys(runtime: Runtime, tenant_id: UUID) -> int:
    """Delete expired idempotency keys; answers how many."""
    return await _forget(runtime, tenant_id, KEYS, KEPT)


async def forget_reservations(runtime: Runtime, tenant_id: UUID) -> int:
    """Delete reservations of months that are over; answers how many."""
    return await _forget(runtime, tenant_id, RESERVATIONS, COUNTED)


async def _forget(runtime: Runtime, tenant_id: UUID, statement: TextClause, kept: timedelta) -> int:
    before, gone = datetime.now(UTC) - kept, 0
    for _ in range(MOST):
        async with runtime.sessions.tenant(tenant_id) as session:
            given = {"tenant": tenant_of(session), "before": before, "many": BATCH}
            batch = len((await session.execute(statement, given)).all())
        gone += batch
        if batch < BATCH:
            break
    return gone
