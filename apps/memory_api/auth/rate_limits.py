"""How many requests a process answers: rates per API key, per tenant, and of unknown keys per
client address; open requests of a tenant; the delay of refusals.

The library `limits` parses a limit and does not count: its asynchronous memory storage visits all
keys on every request.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from math import floor
from uuid import UUID

from limits import RateLimitItem

from memory_api.auth.identity import Identity
from memory_api.core.errors import TooManyRequests
from memory_api.core.settings import Settings, parse_rate_limit

REQUESTED_DELIVERIES = "20/minute"
"""Test events and replays of webhooks that a tenant may ask for."""
CLIENTS_PER_PROXY = 10
"""All clients of one proxy together may send as many unknown keys as this number of clients."""
MAX_WINDOWS = 50_000
"""At this number, windows of earlier periods are dropped; if that is not enough, all."""
TENANT_SHARE = 0.5
"""Of the connections of a process that one tenant may use: event streams and slow readers stay open
for as long as their clients like."""
REFUSALS_PER_SECOND = 20
"""Refusals of a process without a delay, in the long run."""
BURST = 100
"""Refusals at once without a delay, after a quiet time of five seconds."""
MAX_DELAY_SECONDS = 10.0
MAX_DELAYED = 500
"""Refusals that wait at once. Others are sent without a delay."""


class RateLimited(TooManyRequests):
    """Too many requests in a short time. Retry later."""

    code = "rate_limited"


@dataclass
class Window:
    """Requests of one caller: in the previous and in the current period."""

    period: int
    previous: int = 0
    current: int = 0


class RateLimit:
    """A limit for each owner, counted with a sliding window. `clock` returns seconds since the
    epoch.
    """

    def __init__(
        self, name: str, subject: str, item: RateLimitItem, clock: Callable[[], float] = time.time
    ) -> None:
        self.name = name
        self._subject = subject
        self._item = item
        self._amount, self._expiry = item.amount, item.get_expiry()
        self._clock = clock
        self._windows: dict[Hashable, Window] = {}

    @property
    def policy(self) -> str:
        """The limit in the header `RateLimit-Policy`."""
        return f'"{self.name}";q={self._amount};w={self._expiry}'

    def count(self, owner: Hashable) -> None:
        """Count a request, or raise `RateLimited`."""
        window = self._window(owner)
        if floor(self._weighted(window)) < self._amount:
            window.current += 1
            return
        seconds = self._seconds_until_free(window)
        error = RateLimited(
            f"Limit reached: {self._item} for {self._subject}. "
            f"Retry in {seconds} second{'s' if seconds > 1 else ''}.",
            retry_after=seconds,
        )
        error.headers |= {
            "RateLimit-Policy": self.policy,
            "RateLimit": f'"{self.name}";r=0;t={seconds}',
        }
        raise error

    def release(self, owner: Hashable) -> None:
        """Give one request back."""
        window = self._window(owner)
        window.current = max(0, window.current - 1)

    def state(self, owner: Hashable) -> str:
        """Requests left and seconds until the period ends, as in the header `RateLimit`."""
        left = self._amount - floor(self._weighted(self._window(owner)))
        return f'"{self.name}";r={max(0, left)};t={max(1, round(self._seconds_left()))}'

    def _window(self, owner: Hashable) -> Window:
        """The window of the current period."""
        period = int(self._clock() // self._expiry)
        window = self._windows.get(owner)
        if window is None:
            if len(self._windows) >= MAX_WINDOWS:
                current = {k: w for k, w in self._windows.items() if w.period >= period - 1}
                self._windows = current if len(current) < MAX_WINDOWS else {}
            window = self._windows[owner] = Window(period)
        elif window.period != period:
            previous = window.current if window.period == period - 1 else 0
            window = self._windows[owner] = Window(period, previous)
        return window

    def _weighted(self, window: Window) -> float:
        """The requests of the last `expiry` seconds, if those of the previous period were evenly
        spread.
        """
        return window.previous * self._seconds_left() / self._expiry + window.current

    def _seconds_left(self) -> float:
        return self._expiry - self._clock() % self._expiry

    def _seconds_until_free(self, window: Window) -> int:
        """Seconds until the next request is accepted, if no others come. At least 1."""
        seconds = self._seconds_left()
        if window.current < self._amount and window.previous:
            unused = self._amount - 1 - window.current  # what the previous period may still weigh
            seconds -= unused / window.previous * self._expiry
        return max(1, round(seconds + 0.5))


class RateLimits:
    """The rates of a process. Each process counts for itself."""

    def __init__(self, settings: Settings) -> None:
        self._key = _open_limit("key", "this API key", settings.rate_limit_key)
        self._tenant = _open_limit("tenant", "this tenant", settings.rate_limit_tenant)
        failed_keys = settings.rate_limit_failed_keys
        self._failed_keys = _open_limit(
            "failed_keys", "unknown API keys from this address", failed_keys
        )
        self._proxy = _open_limit(
            "proxy", "unknown API keys from all clients of this proxy", failed_keys,
            CLIENTS_PER_PROXY,
        )  # fmt: skip
        self._deliveries = _open_limit(
            "deliveries", "test events and replays of this tenant", REQUESTED_DELIVERIES
        )
        limits = [limit for limit in (self._key, self._tenant) if limit is not None]
        self.policy = ", ".join(limit.policy for limit in limits)
        """The header `RateLimit-Policy`. Empty without limits."""

    def count_request(self, caller: Identity) -> str:
        """Count a request. Returns the header `RateLimit`, which is empty without limits."""
        states: list[str] = []
        for limit, owner in ((self._key, caller.key_id), (self._tenant, caller.tenant_id)):
            if limit is not None:
                limit.count(owner)
                states.append(limit.state(owner))
        return ", ".join(states)

    def count_requested_delivery(self, tenant_id: UUID) -> None:
        """Count a test event or a replay, each of which calls a receiver up to 16 times."""
        if self._deliveries is not None:
            self._deliveries.count(tenant_id)

    def count_unknown_key(self, address: str, peer: str) -> None:
        """Count a key that this process does not know, before the database is asked for it. `peer`
        is the other end of the connection: behind a proxy, `address` may be what a client wrote.
        """
        for limit, network in self._failed_key_counters(address, peer):
            limit.count(network)

    def release_key(self, address: str, peer: str) -> None:
        """Undo `count_unknown_key`: the key is valid."""
        for limit, network in self._failed_key_counters(address, peer):
            limit.release(network)

    def _failed_key_counters(self, address: str, peer: str) -> list[tuple[RateLimit, bytes]]:
        if self._failed_keys is None or self._proxy is None:
            return []
        counters = [(self._failed_keys, _network(address))]
        return counters if peer == address else [*counters, (self._proxy, _network(peer))]


def _open_limit(name: str, subject: str, text: str, factor: int = 1) -> RateLimit | None:
    item = parse_rate_limit(text)
    if item is None:
        return None
    return RateLimit(name, subject, type(item)(item.amount * factor, item.multiples))


def _network(address: str) -> bytes:
    """An IPv4 address, or the /64 network of an IPv6 address, because one client has all its
    addresses.
    """
    try:
        parsed = ip_address(address)
    except ValueError:  # a Unix socket
        return address.encode()
    return parsed.packed[:8] if isinstance(parsed, IPv6Address) else parsed.packed


class OpenRequests:
    """How many requests of a tenant a process answers at once."""

    def __init__(self, max_connections: int) -> None:
        self.limit = max(1, int(max_connections * TENANT_SHARE))
        self._counts = Counter[UUID]()

    def add(self, tenant_id: UUID) -> None:
        """Count a request. Raises `RateLimited` if the tenant has as many as it may have."""
        if self._counts[tenant_id] >= self.limit:
            raise RateLimited(
                f"Limit reached: {self.limit} open requests of this tenant. Close event streams, or"
                " retry in 1 second."
            )
        self._counts[tenant_id] += 1

    def remove(self, tenant_id: UUID) -> None:
        """The response of a request was sent."""
        self._counts[tenant_id] -= 1
        if not self._counts[tenant_id]:
            del self._counts[tenant_id]


class RefusalDelay:
    """Delays refusals while there are many of them, so that clients with wrong keys, which wait for
    an answer before they try again, take little time from other tenants. (The generic cell rate
    algorithm over all refusals of a process.) `clock` returns monotonic seconds.
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
