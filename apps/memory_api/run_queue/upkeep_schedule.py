"""When each tenant needs upkeep next.

A tenant that is active is due within minutes. The upkeep of an idle tenant says itself when it is
due again, so idle tenants cost one index look-up for all of them. Like the queue, the schedule is
read across tenants and has no content.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Sessions
from memory_api.core.db_errors import DatabaseUnavailable, NoFreeConnection, driver_message
from memory_api.core.statements import fetch_column, fetch_rows, load_statement

log = structlog.get_logger()

MARK_UPKEEP_DUE = load_statement("run_queue/queue.sql", "mark_upkeep_due")
CLAIM_DUE_UPKEEP = load_statement("run_queue/queue.sql", "claim_due_upkeep")
FINISH_UPKEEP = load_statement("run_queue/queue.sql", "finish_upkeep")
DROP_UPKEEP = load_statement("run_queue/queue.sql", "drop_upkeep")
DUE_AFTER_ACTIVITY = timedelta(minutes=5)
REMARK_SECONDS = 120.0
"""A process marks a tenant as active at most this often. Upkeep comes `DUE_AFTER_ACTIVITY` after a
mark, so it sees also what a request writes in the last minutes of this time.
"""
CLAIM_DURATION = timedelta(minutes=15)
"""After this time without an end, another process starts the upkeep again."""
DUE_AFTER_QUIET = timedelta(hours=6)
"""The longest time between two upkeeps of a tenant that was active in the last two days."""
MAX_MARKED_TENANTS = 10_000
"""At this size the marks of a process are cleared."""


class UpkeepSchedule:
    """`clock` returns monotonic seconds."""

    def __init__(self, sessions: Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._marked_at: dict[UUID, float] = {}

    async def mark_active(self, tenant_id: UUID) -> None:
        """Make the tenant's upkeep due soon. Call it before the work, so that a killed process
        leaves the mark. Opens a transaction of its own, at most every two minutes per tenant.

        A failure is logged only: on a standby or a full disk, requests that only read still work.
        Raises `NoFreeConnection`: the caller would wait for a connection again.
        """
        now = self._clock()
        if now - self._marked_at.get(tenant_id, float("-inf")) < REMARK_SECONDS:
            return
        if len(self._marked_at) >= MAX_MARKED_TENANTS:
            self._marked_at.clear()
        self._marked_at[tenant_id] = now
        try:
            async with self._sessions.without_tenant() as session:
                parameters = {"tenant": tenant_id, "due_after": DUE_AFTER_ACTIVITY}
                await fetch_rows(session, MARK_UPKEEP_DUE, parameters)
        except BaseException as error:
            self._marked_at.pop(tenant_id, None)
            is_logged = isinstance(error, (DatabaseUnavailable, asyncpg.PostgresError))
            if not is_logged or isinstance(error, NoFreeConnection):
                raise
            log.warning("upkeep_mark_failed", error=driver_message(error))

    async def claim_due(self, limit: int) -> Sequence[UUID]:
        """The tenants whose upkeep is due now. No other process gets them."""
        async with self._sessions.without_tenant() as session:
            parameters = {"limit": limit, "duration": CLAIM_DURATION}
            return await fetch_column(session, CLAIM_DUE_UPKEEP, parameters)


async def finish_upkeep(
    session: AsyncSession, tenant_id: UUID, started_at: datetime, due_at: datetime
) -> None:
    """Say when the tenant's upkeep is due again, in the transaction that ends this one."""
    parameters = {
        "tenant": tenant_id,
        "started_at": started_at,
        "due_at": due_at,
        "due_after_quiet": DUE_AFTER_QUIET,
    }
    await fetch_rows(session, FINISH_UPKEEP, parameters)


async def drop_upkeep(session: AsyncSession, tenant_id: UUID) -> None:
    """Remove a tenant from the schedule. Its next activity adds it again."""
    await fetch_rows(session, DROP_UPKEEP, {"tenant": tenant_id})
