"""How many requests of a tenant a process answers at once. Event streams and slow readers stay open
for as long as their clients like, and each occupies a connection.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from memory_api.auth.rate_limits import RateLimited

TENANT_SHARE = 0.5
"""Of the connections of a process that one tenant may use."""


class OpenRequests:
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
