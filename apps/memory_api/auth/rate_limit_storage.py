"""Counts requests with a sliding window counter: in the memory of the process, or in PostgreSQL for
all processes.

The library `limits` parses a limit and does not count: its asynchronous memory storage visits all
keys on every request, and it has no storage for PostgreSQL.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from memory_api.auth.queries import RequestCount, add_request_count, lock_request_counts
from memory_api.core.db import Sessions

MAX_WINDOWS = 50_000
"""At this number, windows of earlier periods are dropped; if that is not enough, all."""
LEASE_SHARE = 20
"""A process takes up to a 20th of a limit at a time from PostgreSQL."""


@dataclass
class Window:
    """Requests of one caller: in the previous and in the current period."""

    period: int
    previous: int = 0
    current: int = 0
    leased: int = 0
    """Requests that this process has taken from the shared counter and not used yet."""
    refused_until: float = 0.0


class MemoryRateLimitStorage:
    """Counts in this process. `clock` returns seconds since the epoch."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._windows: dict[str, Window] = {}

    async def acquire(self, key: str, limit: int, expiry: int) -> bool:
        """Count a request. Returns False, and counts nothing, at the limit."""
        now = self.clock()
        window = self._window(key, expiry, now)
        if floor(_weighted(window, expiry, now)) >= limit:
            return False
        window.current += 1
        return True

    def remaining(self, key: str, limit: int, expiry: int) -> tuple[int, int]:
        """Requests left, and seconds until the period ends."""
        now = self.clock()
        window = self._window(key, expiry, now)
        used = floor(_weighted(window, expiry, now)) - window.leased
        return max(0, limit - used), max(1, round(expiry - now % expiry))

    def seconds_until_free(self, key: str, limit: int, expiry: int) -> int:
        """Seconds until the next request is accepted, if no others come. At least 1."""
        now = self.clock()
        window = self._window(key, expiry, now)
        left = expiry - now % expiry
        if window.current < limit and window.previous:
            needed = limit - 1 - window.current  # what the previous period may still weigh
            return max(1, round(left - needed / window.previous * expiry + 0.5))
        return max(1, round(left + 0.5))

    async def release(self, key: str, expiry: int) -> None:
        """Give one request back."""
        window = self._window(key, expiry, self.clock())
        window.current = max(0, window.current - 1)

    def _window(self, key: str, expiry: int, now: float) -> Window:
        """The window of the current period."""
        period = int(now // expiry)
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                self._drop_old_windows(period)
            window = self._windows[key] = Window(period)
        elif window.period != period:
            previous = window.current if window.period == period - 1 else 0
            window = self._windows[key] = Window(period, previous)
        return window

    def _drop_old_windows(self, period: int) -> None:
        current = {k: w for k, w in self._windows.items() if w.period >= period - 1}
        self._windows = current if len(current) < MAX_WINDOWS else {}


class PostgresRateLimitStorage(MemoryRateLimitStorage):
    """Counts in the table `rate_limit_counters`, so that a limit holds across processes.

    A process takes a batch of requests from the shared counter and hands them out without the
    database. Batches shrink as the limit comes near, so that a process rarely refuses while another
    one holds requests that it does not use. The limit itself is never exceeded.
    """

    def __init__(self, sessions: Sessions, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self._sessions = sessions
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def acquire(self, key: str, limit: int, expiry: int) -> bool:
        window = self._window(key, expiry, self.clock())
        if not window.leased and window.refused_until <= self.clock():
            async with self._locks[key]:  # one request of this process asks the database
                window = self._window(key, expiry, self.clock())
                if not window.leased and window.refused_until <= self.clock():
                    await self._lease(key, limit, expiry)
            self._locks.pop(key, None)
        window = self._window(key, expiry, self.clock())
        if not window.leased:
            return False
        window.leased -= 1
        return True

    async def release(self, key: str, expiry: int) -> None:
        self._window(key, expiry, self.clock()).leased += 1

    async def _lease(self, key: str, limit: int, expiry: int) -> None:
        now = self.clock()
        window = self._window(key, expiry, now)
        async with self._sessions.without_tenant() as session:
            counter = RequestCount(key, window.period, (window.period + 2) * expiry)
            window.previous, window.current = await lock_request_counts(session, counter)
            left = limit - floor(_weighted(window, expiry, now))
            granted = max(0, min(left, max(1, min(limit // LEASE_SHARE, left // 4))))
            if granted:
                await add_request_count(session, counter, granted)
        window.current += granted
        window.leased += granted
        if not granted:
            window.refused_until = now + min(1.0, expiry / LEASE_SHARE)


def _weighted(window: Window, expiry: int, now: float) -> float:
    """The requests of the last `expiry` seconds, if those of the previous period were evenly
    spread.
    """
    return window.previous * (1 - now % expiry / expiry) + window.current
