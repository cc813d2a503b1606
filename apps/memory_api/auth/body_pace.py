"""How fast the request bodies of one tenant are read, so that its large bodies leave time for the
requests of other tenants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

BURST_BYTES = 32 * 1024 * 1024
"""A tenant that has sent nothing for a while can send this many bytes at once."""
MAX_TENANTS = 10_000
"""At this number of tenants, those whose burst is full again are forgotten."""


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
