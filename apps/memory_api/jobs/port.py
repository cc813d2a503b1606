"""The queue port. `runs` is the truth; the queue only carries (tenant, run) to a worker, in the
caller's transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.ids import made_at


@dataclass(frozen=True)
class Ticket:
    """What a queue row says: whose run to look at. The steps of a `chain` stand in line where its
    first run does.
    """

    tenant_id: UUID
    run_id: UUID
    chain: UUID | None = field(default=None, compare=False)

    @property
    def begun(self) -> datetime:
        """Since when it stands in line: no more than an order hangs on the clock of who made it."""
        return made_at(self.chain or self.run_id)

    def encode(self) -> bytes:
        return f"{self.tenant_id}/{self.run_id}".encode()

    @classmethod
    def decode(cls, payload: bytes) -> Ticket:
        tenant, _, run = payload.decode().partition("/")
        return cls(UUID(tenant), UUID(run))


Deliver = Callable[[Ticket], Awaitable[timedelta | None]]
"""Works on a ticket. Answers None when it is settled, or how long to wait before delivering it
again.
"""

Tick = Callable[[], Awaitable[None]]
"""Called on a schedule."""


class JobQueue(Protocol):
    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        """Make tickets deliverable when the session's transaction commits, in the order in which
        their runs or chains were made; or else not before `after` has passed.
        """
        ...

    async def room(self, session: AsyncSession) -> int:
        """How many more runs of the session's tenant the queue takes now."""
        ...

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        """Ask, before a request makes work of its own, whether the queue takes `count` more runs of
        the session's tenant. Raises `QueueFull` (429). Work that follows from work is not asked.
        """
        ...

    async def run(
        self,
        deliver: Deliver,
        *,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, Tick]],
    ) -> None:
        """Deliver tickets until `stop` is set, at most `concurrency` of one tenant at once and a
        quarter more of all; tenants take turns. A ticket whose worker dies, or whose delivery
        raises, is delivered again. `schedules` maps a name to (cron expression, function); one
        process runs each tick.
        """
        ...
