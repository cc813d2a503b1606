"""Back-pressure: refuses new runs while too many are queued."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import TooManyRequests
from memory_api.core.statements import fetch_value, load_statement

COUNT_QUEUED_TICKETS = load_statement("run_queue/queue.sql", "count_queued_tickets")
ALL_LANES = UUID(int=0), UUID(int=2**128 - 1)
"""The range of all lanes. A lane holds the tickets of one tenant; its key is the tenant ID."""
RETRY_AFTER_SECONDS = 5
COUNT_CACHE_SECONDS = 1.0
"""How long a count is cached, in seconds. Runs admitted by this process are added to it."""
RESERVED_RUNS = 1_000
"""A tenant may have this many queued runs, however many other tenants have: otherwise a few
tenants could fill the queue for all."""
MAX_CACHED_TENANTS = 1_000
"""At this size the cache of counts is cleared."""


class QueueFull(TooManyRequests):
    """Queue limit reached. Retry later."""

    code = "queue_full"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, retry_after=RETRY_AFTER_SECONDS)


@dataclass
class _CachedCount:
    count: int
    expires_at: float


@dataclass
class AdmissionControl:
    """Limits the number of queued runs per tenant and in total.

    Each count is cached for one second, and the query stops counting at the limit. So a process may
    exceed a limit by the number of runs that other processes admit within this second.
    """

    tenant_limit: int = 50_000
    total_limit: int = 250_000
    clock: Callable[[], float] = time.monotonic
    _counts: dict[tuple[UUID, UUID], _CachedCount] = field(default_factory=dict[Any, _CachedCount])

    async def get_remaining_capacity(self, session: AsyncSession, tenant_id: UUID) -> int:
        """The number of further runs that the queue accepts from the tenant now."""
        tenant, total = await self._load_counts(session, tenant_id)
        of_all = max(self.total_limit - total.count, RESERVED_RUNS - tenant.count)
        return max(0, min(self.tenant_limit - tenant.count, of_all))

    async def admit(self, session: AsyncSession, tenant_id: UUID, count: int) -> None:
        """Admit `count` further runs of the tenant. Raises `QueueFull` if a limit would be
        exceeded.
        """
        tenant, total = await self._load_counts(session, tenant_id)
        if tenant.count + count > self.tenant_limit:
            raise QueueFull(
                f"Queue limit reached: a tenant may have at most {self.tenant_limit:,} queued runs."
                f" Retry in {RETRY_AFTER_SECONDS} seconds."
            )
        if total.count + count > self.total_limit and tenant.count + count > RESERVED_RUNS:
            raise QueueFull(
                "Queue limit of the service reached: too many runs are queued, and more than"
                f" {RESERVED_RUNS:,} of this tenant."
                f" Retry in {RETRY_AFTER_SECONDS} seconds."
            )
        tenant.count += count
        total.count += count

    async def _load_counts(
        self, session: AsyncSession, tenant_id: UUID
    ) -> tuple[_CachedCount, _CachedCount]:
        """The tenant's count and the total."""
        tenant = await self._count_queued(session, (tenant_id, tenant_id), self.tenant_limit)
        return tenant, await self._count_queued(session, ALL_LANES, self.total_limit)

    async def _count_queued(
        self, session: AsyncSession, lanes: tuple[UUID, UUID], limit: int
    ) -> _CachedCount:
        now = self.clock()
        cached = self._counts.get(lanes)
        if cached is not None and cached.expires_at > now:
            return cached
        if len(self._counts) >= MAX_CACHED_TENANTS:
            self._counts.clear()
        parameters = {"first": lanes[0], "last": lanes[1], "limit": limit}
        count: int = await fetch_value(session, COUNT_QUEUED_TICKETS, parameters)
        cached = _CachedCount(count, now + COUNT_CACHE_SECONDS)
        self._counts[lanes] = cached
        return cached
