"""Back-pressure: how much may wait in the queue before new work is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from apps.memory_api.core.errors import Busy
from apps.memory_api.core.sql import read

WAITING = read(__file__, "waiting.sql")
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)
RETRY_AFTER = 5
"""Seconds a refused caller is asked to wait."""
KNOWN_FOR = 1.0
"""Seconds a count is trusted; what this process adds meanwhile is counted on top."""
REMEMBERED = 1_000
"""Tenants whose counts are remembered."""


class QueueFull(Busy):
    """Too much work waits already."""

    code = "queue_full"

    def __init__(self, detail: str | None = None) -> None:
        super().__init__(detail, retry_after=RETRY_AFTER)


@dataclass
class _Known:
    count: int
    until: float


@dataclass
class Bounds:
    """Refuses work past a bound. The queue is counted at most once a second for a tenant, and no
    further than its bound; so a process may overshoot by what the others take in that second.
    """

    one_tenant: int = 50_000
    all_tenants: int = 250_000
    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[UUID, UUID], _Known] = field(default_factory=dict[Any, _Known])

    async def room(self, connection: asyncpg.Connection[Any], tenant_id: UUID) -> int:
        """How many more runs of a tenant are let in now."""
        own, everybody = await self._both(connection, tenant_id)
        left = (self.one_tenant - own.count, self.all_tenants - everybody.count)
        return max(0, min(left))

    async def admit(self, connection: asyncpg.Connection[Any], tenant_id: UUID, count: int) -> None:
        """Let `count` more runs of a tenant in. Raises `QueueFull`."""
        own, everybody = await self._both(connection, tenant_id)
        if own.count + count > self.one_tenant:
            raise QueueFull(f"{self.one_tenant} runs of yours wait already.")
        if everybody.count + count > self.all_tenants:
            raise QueueFull("The service has more work waiting than it takes.")
        own.count += count
        everybody.count += count

    async def _both(
        self, connection: asyncpg.Connection[Any], tenant_id: UUID
    ) -> tuple[_Known, _Known]:
        own = await self._waiting(connection, (tenant_id, tenant_id), self.one_tenant)
        return own, await self._waiting(connection, (FIRST, LAST), self.all_tenants)

    async def _waiting(
        self, connection: asyncpg.Connection[Any], lanes: tuple[UUID, UUID], bound: int
    ) -> _Known:
        now = self.clock()
        known = self._known.get(lanes)
        if known is not None and known.until > now:
            return known
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        found: int = await connection.fetchval(WAITING, *lanes, bound)
        known = _Known(found, now + KNOWN_FOR)
        self._known[lanes] = known
        return known
