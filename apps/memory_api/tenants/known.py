"""Keys that were checked a moment ago, so that not every request asks the database.

A key that is revoked stops at once in the process that revoked it, and within `SECONDS` everywhere
else. The same holds for a tenant that is suspended. Expiry is exact.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

from apps.memory_api.tenants.identity import Identity

SECONDS = 5.0
MOST = 10_000
"""Keys remembered; past that all are forgotten and asked for again."""

Claim = tuple[UUID, bytes]
"""The tenant a key claims, and the SHA-256 of its secret."""


class KnownKeys:
    """Of one process. `clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Claim, tuple[Identity, float]] = {}

    def find(self, claim: Claim) -> Identity | None:
        identity, until = self._known.get(claim, (None, 0.0))
        return identity if self._clock() < until else None

    def remember(self, claim: Claim, identity: Identity, expires_at: datetime | None) -> None:
        """After the database said yes."""
        left = SECONDS
        if expires_at is not None:
            left = min(left, (expires_at - datetime.now(UTC)).total_seconds())
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[claim] = (identity, self._clock() + left)

    def forget(self, key_id: UUID) -> None:
        """A key was revoked here."""
        self._known = {c: k for c, k in self._known.items() if k[0].key_id != key_id}
