"""Rate limits per API key, per tenant, and of unknown keys per client address."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from uuid import UUID

from limits import RateLimitItem

from memory_api.auth.identity import Identity
from memory_api.auth.rate_limit_storage import (
    MemoryRateLimitStorage,
    PostgresRateLimitStorage,
)
from memory_api.core.db import Sessions
from memory_api.core.errors import TooManyRequests
from memory_api.core.settings import Settings, parse_rate_limit

REQUESTED_DELIVERIES = "20/minute"
"""Test events and replays of webhooks that a tenant may ask for."""
CLIENTS_PER_PROXY = 10
"""All clients of one proxy together may send as many unknown keys as this number of clients."""


class RateLimited(TooManyRequests):
    """Too many requests in a short time. Retry later."""

    code = "rate_limited"


@dataclass(frozen=True)
class RateLimit:
    """A limit and what it applies to: `key`, `tenant`, `failed_keys`, `proxy` or `deliveries`."""

    name: str
    item: RateLimitItem
    expiry: int

    @property
    def policy(self) -> str:
        """The limit in the header `RateLimit-Policy`."""
        return f'"{self.name}";q={self.item.amount};w={self.expiry}'

    def key(self, owner: str) -> str:
        """The name of the counter of one owner."""
        return f"{self.name}/{self.item.amount}/{self.expiry}/{owner}"


class RateLimits:
    """Counts requests and raises `RateLimited` above a limit."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._key = _open_limit("key", settings.rate_limit_key)
        self._tenant = _open_limit("tenant", settings.rate_limit_tenant)
        self._failed_keys = _open_limit("failed_keys", settings.rate_limit_failed_keys)
        self._proxy = None if self._failed_keys is None else _limit_of_proxy(self._failed_keys)
        self._deliveries = _open_limit("deliveries", REQUESTED_DELIVERIES)
        self.storage = (
            PostgresRateLimitStorage(sessions)
            if settings.rate_limit_storage == "postgresql"
            else MemoryRateLimitStorage()
        )
        limits = [limit for limit in (self._key, self._tenant) if limit is not None]
        self.policy = ", ".join(limit.policy for limit in limits)
        """The header `RateLimit-Policy`. Empty without limits."""

    async def count_request(self, caller: Identity) -> str:
        """Count a request. Returns the header `RateLimit`, which is empty without limits."""
        states: list[str] = []
        for limit, owner in ((self._key, caller.key_id), (self._tenant, caller.tenant_id)):
            if limit is None:
                continue
            key = await self._hit(limit, str(owner))
            left, seconds = self.storage.remaining(key, limit.item.amount, limit.expiry)
            states.append(f'"{limit.name}";r={left};t={seconds}')
        return ", ".join(states)

    async def count_requested_delivery(self, tenant_id: UUID) -> None:
        """Count a test event or a replay, each of which calls a receiver up to 16 times."""
        if self._deliveries is not None:
            await self._hit(self._deliveries, str(tenant_id))

    async def count_unknown_key(self, address: str, peer: str) -> None:
        """Count a key that this process does not know, before the database is asked for it. `peer`
        is the other end of the connection: behind a proxy, `address` may be what a client wrote.
        """
        for limit, owner in self._failed_key_counters(address, peer):
            await self._hit(limit, owner)

    async def forgive_key(self, address: str, peer: str) -> None:
        """Undo `count_unknown_key`: the key is valid."""
        for limit, owner in self._failed_key_counters(address, peer):
            await self.storage.release(limit.key(owner), limit.expiry)

    def _failed_key_counters(self, address: str, peer: str) -> list[tuple[RateLimit, str]]:
        if self._failed_keys is None or self._proxy is None:
            return []
        counters = [(self._failed_keys, _hash_network(address))]
        return counters if peer == address else [*counters, (self._proxy, _hash_network(peer))]

    async def _hit(self, limit: RateLimit, owner: str) -> str:
        """Count a request and return the key of its counter."""
        key = limit.key(owner)
        if await self.storage.acquire(key, limit.item.amount, limit.expiry):
            return key
        seconds = self.storage.seconds_until_free(key, limit.item.amount, limit.expiry)
        error = RateLimited(
            f"Limit reached: {limit.item} for {_SUBJECTS[limit.name]}. "
            f"Retry in {seconds} second{'s' if seconds > 1 else ''}.",
            retry_after=seconds,
        )
        error.headers |= {
            "RateLimit-Policy": limit.policy,
            "RateLimit": f'"{limit.name}";r=0;t={seconds}',
        }
        raise error


def _limit_of_proxy(limit: RateLimit) -> RateLimit:
    item = type(limit.item)(limit.item.amount * CLIENTS_PER_PROXY, limit.item.multiples)
    return RateLimit("proxy", item, limit.expiry)


_SUBJECTS = {
    "key": "this API key",
    "tenant": "this tenant",
    "failed_keys": "unknown API keys from this address",
    "proxy": "unknown API keys from all clients of this proxy",
    "deliveries": "test events and replays of this tenant",
}


def _open_limit(name: str, text: str) -> RateLimit | None:
    item = parse_rate_limit(text)
    return None if item is None else RateLimit(name, item, item.get_expiry())


def _hash_network(address: str) -> str:
    """The hash of an IPv4 address, or of the /64 network of an IPv6 address, because one client has
    all its addresses.
    """
    try:
        parsed = ip_address(address)
        network = parsed.packed[:8] if isinstance(parsed, IPv6Address) else parsed.packed
    except ValueError:  # a Unix socket
        network = address.encode()
    return hashlib.sha256(network).hexdigest()[:32]
