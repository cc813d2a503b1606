"""Delays refusals while there are many of them, so that clients with wrong keys, which wait for an
answer before they try again, take little time from other tenants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

REFUSALS_PER_SECOND = 20
"""Refusals of a process without a delay, in the long run."""
BURST = 100
"""Refusals at once without a delay, after a quiet time of five seconds."""
MAX_DELAY_SECONDS = 10.0
MAX_DELAYED = 500
"""Requests that wait at once. Others are refused without a delay."""


class RefusalDelay:
    """The generic cell rate algorithm over all refusals of a process. `clock` returns monotonic
    seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = 0.0
        """From this time on, the refusals so far are within the rate."""
        self._delayed = 0

    def next_delay(self) -> float:
        """Count a refusal. Returns how long it has to wait, in seconds."""
        now = self._clock()
        latest = now + BURST / REFUSALS_PER_SECOND + MAX_DELAY_SECONDS
        self._next_at = min(max(now, self._next_at) + 1 / REFUSALS_PER_SECOND, latest)
        return max(0.0, self._next_at - now - BURST / REFUSALS_PER_SECOND)

    async def wait(self) -> None:
        """Call it before a refusal, without an open transaction."""
        delay = self.next_delay()
        if delay == 0 or self._delayed >= MAX_DELAYED:
            return
        self._delayed += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._delayed -= 1
