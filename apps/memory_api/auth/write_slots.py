"""Writes of a tenant wait for each other while other tenants use the same process, so that a flood
of one leaves time for the requests of the others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from memory_api.auth.rate_limits import RateLimited

SHARED_SECONDS = 5.0
"""A process is shared for this time after a request of another tenant."""
MAX_WRITES = 1
"""Writes of one tenant in progress in a shared process. Without other tenants there is no limit."""
MAX_PAUSE_SECONDS = 0.1
"""In a shared process, the next write starts after a pause that is as long as the last write took,
at most this long."""
MAX_WAITING = 100
"""Writes of one tenant that wait in a process. Each occupies a connection and has its body in
memory."""


@dataclass
class _Writes:
    """The writes of one tenant: how many have a slot, and those that wait for theirs."""

    slots: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])


class WriteSlots:
    """Not for routes that wait for a model: their slot would last as long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._writes: dict[UUID, _Writes] = {}
        self._last_tenant: UUID | None = None
        self._last_at = -math.inf
        self._other_at = -math.inf
        """The last request of any other tenant than `_last_tenant`."""

    def note_request(self, tenant_id: UUID) -> None:
        """Call it for every request of a known key."""
        if tenant_id != self._last_tenant:
            self._last_tenant, self._other_at = tenant_id, self._last_at
        self._last_at = self._clock()

    @asynccontextmanager
    async def slot(self, tenant_id: UUID) -> AsyncGenerator[None]:
        """Wait for a slot and hold it while the block runs. Raises `RateLimited`."""
        await self._take_slot(tenant_id)
        started_at = self._clock()
        try:
            yield
        finally:
            if self._is_shared(tenant_id):
                pause = min(self._clock() - started_at, MAX_PAUSE_SECONDS)
                asyncio.get_running_loop().call_later(pause, self._release_slot, tenant_id)
            else:
                self._release_slot(tenant_id)

    def _is_shared(self, tenant_id: UUID) -> bool:
        other_at = self._other_at if tenant_id == self._last_tenant else self._last_at
        return self._clock() - other_at < SHARED_SECONDS

    def _may_start(self, tenant_id: UUID) -> bool:
        return self._writes[tenant_id].slots < MAX_WRITES or not self._is_shared(tenant_id)

    async def _take_slot(self, tenant_id: UUID) -> None:
        writes = self._writes.setdefault(tenant_id, _Writes())
        if not writes.waiting and self._may_start(tenant_id):
            writes.slots += 1
            return
        if len(writes.waiting) >= MAX_WAITING:
            raise RateLimited(
                f"{MAX_WAITING} writes of this tenant are in progress. Retry in 1 second."
            )
        slot = asyncio.get_running_loop().create_future()
        writes.waiting.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.cancelled():
                writes.waiting.remove(slot)
            else:
                self._release_slot(tenant_id)
            raise

    def _release_slot(self, tenant_id: UUID) -> None:
        writes = self._writes[tenant_id]
        writes.slots -= 1
        while writes.waiting and self._may_start(tenant_id):
            slot = writes.waiting.popleft()
            if not slot.done():
                writes.slots += 1
                slot.set_result(None)
        if not writes.slots and not writes.waiting:
            del self._writes[tenant_id]
