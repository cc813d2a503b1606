"""The port of the run queue. A ticket carries (tenant, run) to a worker. The state of the run is in
the table `runs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.ids import id_timestamp

SlotKind = Literal["work", "delivery", "document"]
"""Which slots of a worker a ticket uses. Deliveries wait for receivers that tenants choose, and a
document may take ten minutes to read.
"""
SLOTS_BY_KIND: Mapping[str, SlotKind] = {
    "webhook": "delivery",
    "budget_alert": "delivery",
    "chunk": "document",
}
"""The kinds of runs that do not use the slots for work."""


def slots_of(run_kind: str) -> SlotKind:
    """The slots that a run of this kind uses."""
    return SLOTS_BY_KIND.get(run_kind, "work")


@dataclass(frozen=True)
class Ticket:
    """A queue entry. All steps of a chain have the queue position of the chain's first run.

    `chain_id` is the ID of that first run. `traceparent` continues the trace (OpenTelemetry) of the
    request or run that queued the ticket.
    """

    tenant_id: UUID
    run_id: UUID
    chain_id: UUID | None = field(default=None, compare=False)
    slots: SlotKind = field(default="work", compare=False)
    traceparent: str | None = field(default=None, compare=False)

    @property
    def enqueued_at(self) -> datetime:
        """Enqueue time. Used only for ordering, so clock skew between producers is harmless."""
        return id_timestamp(self.chain_id or self.run_id)


TicketHandler = Callable[[Ticket], Awaitable[timedelta | None]]
"""Handles a ticket. Returns None if it is done, or the time after which to deliver it again."""


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
        self, deliver: TicketHandler, *, concurrency: int, stop: asyncio.Event
    ) -> None:
        """Deliver tickets until `stop` is set, then finish the deliveries that have begun.

        At most `concurrency` tickets of one tenant are delivered at once, and a quarter more of all
        tenants; tenants are served fairly. Deliveries to webhooks and documents have slots of their
        own. A ticket is delivered again if its worker dies or `deliver` raises.
        """
        ...
