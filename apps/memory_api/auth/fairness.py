"""What one tenant may take of a process that others use, too: its bodies are read at a rate, and
its writes wait for each other (docs/decisions/fairness.md).
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

BURST_BYTES = 32 * 1024 * 1024
"""A tenant that has sent nothing for a while can send this many bytes at once."""
MAX_TENANTS = 10_000
"""At this number of tenants, those whose burst is full again are forgotten."""
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


class BodyPace:
    """Delays the reading of bodies: `rate` bytes per second for each tenant after a burst of
    `BURST_BYTES`. A rate of 0 has no limit. (The generic cell rate algorithm.)
    """

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._paid_until: dict[UUID, float] = {}
        """When the bytes that a tenant has sent would have arrived at this rate."""

    async def wait(self, tenant_id: UUID, size: int) -> None:
        """Count `size` bytes and wait as long as the tenant is ahead of its rate."""
        if self._rate and (seconds := self.delay(tenant_id, size)) > 0:
            await asyncio.sleep(seconds)

    def delay(self, tenant_id: UUID, size: int) -> float:
        """Count `size` bytes. Returns the seconds to wait; 0 or less within the burst."""
        now = self._clock()
        if len(self._paid_until) >= MAX_TENANTS:
            self._paid_until = {key: end for key, end in self._paid_until.items() if end > now}
        end = max(self._paid_until.get(tenant_id, now), now) + size / self._rate
        self._paid_until[tenant_id] = end
        return end - now - BURST_BYTES / self._rate


@dataclass
class _Writes:
    """The writes of one tenant: how many have a slot, and those that wait for theirs."""

    slots: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])


class WriteSlots:
    """One write of a tenant at a time in a shared process. Not for routes that wait for a model:
    their slot would last as long.
    """

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
