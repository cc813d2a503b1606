"""The port of the run queue. A ticket carries (tenant, run) to a worker. The state of the run is in
the table `runs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.ids import id_timestamp


@dataclass(frozen=True)
class Ticket:
    """A queue entry. All steps of a chain have the queue position of the chain's first run.

    `chain_id` is the ID of that first run. `traceparent` continues the trace (OpenTelemetry) of the
    request or run that queued the ticket.
    """

    tenant_id: UUID
    run_id: UUID
    chain_id: UUID | None = field(default=None, compare=False)
    traceparent: str | None = field(default=None, compare=False)

    @property
    def enqueued_at(self) -> datetime:
        """Enqueue time. Used only for ordering, so clock skew between producers is harmless."""
        return id_timestamp(self.chain_id or self.run_id)

    def encode(self) -> bytes:
        return f"{self.tenant_id}/{self.run_id}".encode()

    @classmethod
    def decode(cls, payload: bytes, traceparent: str | None = None) -> Ticket:
        tenant, _, run = payload.decode().partition("/")
        return cls(UUID(tenant), UUID(run), traceparent=traceparent)


TicketHandler = Callable[[Ticket], Awaitable[timedelta | None]]
"""Handles a ticket. Returns None if it is done, or the time after which to deliver it again."""

ScheduledCallback = Callable[[], Awaitable[None]]


class RunQueue(Protocol):
    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        """Add tickets in the session's transaction.

        They are delivered in the order of their runs or chains. With `after`, they are delivered at
        the earliest after this time.
        """
        ...

    async def get_remaining_capacity(self, session: AsyncSession) -> int:
        """The number of further runs that the queue accepts from the session's tenant now."""
        ...

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        """Check that the queue accepts `count` further runs of the session's tenant. Raises
        `QueueFull` (429). Call it for work that a request starts, not for the next step of a chain.
        """
        ...

    async def consume(
        self,
        deliver: TicketHandler,
        *,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, ScheduledCallback]],
    ) -> None:
        """Deliver tickets until `stop` is set.

        At most `concurrency` tickets of one tenant are delivered at once, and a quarter more of all
        tenants; tenants are served fairly. A ticket is delivered again if its worker dies or
        `deliver` raises. `schedules` maps a name to (cron expression, callback); for each tick, one
        process calls it.
        """
        ...
