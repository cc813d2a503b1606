"""The run queue: the table `tickets`, SKIP LOCKED and LISTEN (docs/decisions/queue.md).

A worker polls. A notification only makes it poll earlier: nothing is read from it, because every
login of the database can send one, and PostgreSQL can lose the ability to send any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.after_commit import TICKETS_CHANNEL, channel_name, notify_after_commit
from memory_api.core.db import current_tenant_id
from memory_api.core.db_errors import (
    SCHEMA_MISSING,
    DatabaseLoginRefused,
    DatabaseUnavailable,
    driver_message,
    is_transient,
    to_unavailable,
    translate_connection_errors,
)
from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import read_sql
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.core.tracing import current_traceparent
from memory_api.run_queue.admission import AdmissionControl
from memory_api.run_queue.lane_pace import MIN_START_SECONDS, LanePace
from memory_api.run_queue.port import SlotKind, Ticket, TicketHandler

log = structlog.get_logger()

ENQUEUE = load_statement("run_queue/queue.sql", "enqueue")
TAKE_TICKETS = read_sql("run_queue/queue.sql", "take_tickets")
RETURN_TICKETS = read_sql("run_queue/queue.sql", "return_tickets")
DELETE_TICKETS = read_sql("run_queue/queue.sql", "delete_tickets")
HEARTBEAT = read_sql("run_queue/queue.sql", "heartbeat")
MIN_POLL_INTERVAL_SECONDS, MAX_POLL_INTERVAL_SECONDS = 0.02, 0.1
"""Minimum time between two polls of the queue by one worker, in seconds: of a worker with free
slots, and of one with many slots that are mostly taken.
"""
POLL_INTERVAL_SECONDS_PER_SLOT = 0.003
IDLE_POLL_SECONDS = 1.0
"""Time until a worker polls without a notification."""
RECONNECT_SECONDS = 1.0
REDELIVERY_DELAY = timedelta(seconds=2)
"""Delay before a ticket is delivered again after `deliver` raised an error."""
UNREACHABLE_PAUSE_SECONDS = 4.0
"""How long a worker takes no tickets after `deliver` could not reach the database. Longer than
`REDELIVERY_DELAY`, so that a worker that can reach it takes the ticket.
"""


@dataclass(frozen=True)
class WorkerSlots:
    """The number of tickets of one kind that a worker process may hold at once, of one tenant and
    in total. So slow work of one tenant leaves slots for the others.
    """

    per_tenant: int
    total: int
    poll_seconds: float = MIN_POLL_INTERVAL_SECONDS
    """Minimum time between two polls of the queue for these slots."""

    @classmethod
    def for_work(cls, concurrency: int) -> WorkerSlots:
        return cls(concurrency, concurrency + max(1, concurrency // 4))


DELIVERY_SLOTS = WorkerSlots(per_tenant=2, total=16)
"""Webhook deliveries wait for receivers that tenants choose, so they have slots of their own."""
DOCUMENT_SLOTS = WorkerSlots(per_tenant=2, total=3, poll_seconds=0.2)
"""A document can take `extraction.MAX_SECONDS`. With the slots for work at the default concurrency,
these are as many as the processes for large inputs.
"""


@dataclass(frozen=True)
class TakenTicket:
    """A ticket that a worker holds, and the ID of its row."""

    id: int
    ticket: Ticket


@dataclass
class TicketSource:
    """Takes and completes the tickets of one kind for one worker. Not for concurrent use."""

    connection: asyncpg.Connection[Any] | asyncpg.Pool
    slots: WorkerSlots
    kind: SlotKind = "work"
    heartbeat_timeout: timedelta = timedelta(seconds=30)
    worker_id: UUID = field(default_factory=uuid4)
    next_due_in: float | None = None
    """Seconds until the next delayed ticket is due, as of the last poll."""

    async def take(
        self, paused: Sequence[UUID] = (), max_per_lane: int | None = None
    ) -> Sequence[TakenTicket]:
        """Take tickets for all free slots, from the tenants with the fewest taken tickets first.
        None of the lanes `paused`, and at most `max_per_lane` of each other one.
        """
        rows = await self.connection.fetch(
            TAKE_TICKETS,
            self.worker_id,
            self.slots.total,
            self.slots.per_tenant,
            self.heartbeat_timeout,
            self.kind,
            list(paused),
            self.slots.per_tenant if max_per_lane is None else max_per_lane,
        )
        self.next_due_in = rows[0]["next_due_in"]
        return [
            TakenTicket(
                row["id"],
                Ticket(row["lane"], row["run_id"], slots=self.kind, traceparent=row["traceparent"]),
            )
            for row in rows
            if row["id"] is not None
        ]

    async def delete(self, ids: Sequence[int]) -> None:
        """Delete tickets that are done."""
        await self.connection.execute(DELETE_TICKETS, ids)

    async def give_back(self, delays: dict[int, timedelta]) -> None:
        """Return tickets to the queue, each due after its delay."""
        await self.connection.execute(
            RETURN_TICKETS, list(delays), list(delays.values()), self.worker_id
        )

    async def beat(self) -> None:
        """Say that the worker is alive, for all its tickets."""
        await self.connection.execute(HEARTBEAT, self.worker_id)


class Consumer:
    """Delivers the tickets of one source until `stop` is set."""

    def __init__(self, source: TicketSource, deliver: TicketHandler, stop: asyncio.Event) -> None:
        self._source = source
        self._deliver = deliver
        self._stop = stop
        self._wake = asyncio.Event()
        self._deliveries: dict[int, asyncio.Task[None]] = {}
        self._done: list[int] = []
        self._returned: dict[int, timedelta] = {}
        self._paused_until = 0.0
        self._next_beat_at = 0.0
        self._pace = LanePace()
        self._has_paused_lanes = False

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Ends after `stop` is set and the deliveries that have begun are done. While the queue's
        own connection fails, it tries again and the deliveries go on. Raises errors that waiting
        does not resolve.
        """
        try:
            while not self._stop.is_set() or self._deliveries:
                self._wake.clear()
                try:
                    await self._poll()
                except Exception as error:
                    self._pause_after(error)
                await self._sleep()
            await self._settle()
        except asyncio.CancelledError:
            for delivery in self._deliveries.values():
                delivery.cancel()
            raise
        finally:
            await asyncio.gather(*self._deliveries.values(), return_exceptions=True)

    async def _poll(self) -> None:
        await self._settle()
        is_paused = asyncio.get_running_loop().time() < self._paused_until
        is_full = len(self._deliveries) >= self._source.slots.total
        if is_paused or is_full or self._stop.is_set():
            return
        for taken in await self._take():
            # After a late heartbeat, a worker may take a ticket again that it still delivers.
            if taken.id not in self._deliveries:
                self._deliveries[taken.id] = asyncio.create_task(self._deliver_ticket(taken))

    async def _take(self) -> Sequence[TakenTicket]:
        """Take tickets. While several tenants have runs, one at a time of each."""
        is_shared = self._pace.is_shared
        paused = self._pace.paused_lanes() if is_shared else ()
        self._has_paused_lanes = bool(paused)
        taken = await self._source.take(paused, 1 if is_shared else None)
        self._pace.note_taken(each.ticket.tenant_id for each in taken)
        return taken

    def _pause_after(self, error: Exception) -> None:
        """Raises the error if waiting does not resolve it."""
        unavailable = to_unavailable(error)
        if isinstance(unavailable, DatabaseLoginRefused):
            raise unavailable from error
        if unavailable is None and not is_transient(error):
            raise error
        log.warning("database_unavailable", error=driver_message(error))
        self._pause(RECONNECT_SECONDS)

    def _interval(self) -> float:
        """Seconds between two polls. A worker that is busy leaves a free slot empty for longer, so
        that one statement handles several tickets.
        """
        per_tenant = self._source.slots.per_tenant
        if len(self._deliveries) < per_tenant / 2:
            return self._source.slots.poll_seconds
        by_slots = min(POLL_INTERVAL_SECONDS_PER_SLOT * per_tenant, MAX_POLL_INTERVAL_SECONDS)
        return max(by_slots, self._source.slots.poll_seconds)

    async def _settle(self) -> None:
        """Delete or return the tickets whose delivery has ended, and send the heartbeat."""
        done, self._done = self._done, []
        if done:
            await self._source.delete(done)
        returned, self._returned = self._returned, {}
        if returned:
            await self._source.give_back(returned)
        now = asyncio.get_running_loop().time()
        if self._deliveries and now >= self._next_beat_at:
            self._next_beat_at = now + self._source.heartbeat_timeout.total_seconds() / 4
            await self._source.beat()

    async def _deliver_ticket(self, taken: TakenTicket) -> None:
        delay: timedelta | None = REDELIVERY_DELAY
        try:
            delay = await self._deliver(taken.ticket)
        except DatabaseUnavailable as error:
            log.warning("database_unavailable", ticket=taken.id, error=driver_message(error))
            self._pause(UNREACHABLE_PAUSE_SECONDS)
        except Exception as error:
            log.error("delivery_failed", ticket=taken.id, error=str(error), exc_info=True)
        finally:
            del self._deliveries[taken.id]
            self._wake.set()
        if delay is None:
            self._done.append(taken.id)
        else:
            self._returned[taken.id] = delay

    def _pause(self, seconds: float) -> None:
        """Take no tickets for this time."""
        self._paused_until = asyncio.get_running_loop().time() + seconds

    async def _sleep(self) -> None:
        """Wait for a wake-up, the next delayed ticket, heartbeat or poll; at least an interval, so
        that one poll handles several changes.
        """
        longest = min(IDLE_POLL_SECONDS, self._source.heartbeat_timeout.total_seconds() / 4)
        until_due = self._source.next_due_in
        wait = longest if until_due is None else min(longest, max(until_due, 0.0))
        if self._has_paused_lanes:
            wait = min(wait, MIN_START_SECONDS)
        ended_at = asyncio.get_running_loop().time() + self._interval()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), wait)
        await asyncio.sleep(max(0.0, ended_at - asyncio.get_running_loop().time()))


def enqueue_parameters(tickets: Sequence[Ticket], after: timedelta | None = None) -> dict[str, Any]:
    """The parameters of ENQUEUE."""
    return {
        "lanes": [ticket.tenant_id for ticket in tickets],
        "run_ids": [ticket.run_id for ticket in tickets],
        "slots": [ticket.slots for ticket in tickets],
        "enqueued_at": [ticket.enqueued_at for ticket in tickets],
        "delay": after,
        "traceparent": current_traceparent(),
    }


class PostgresRunQueue:
    """The worker dequeues and listens at `url`. `enqueue` uses the caller's connection."""

    def __init__(
        self,
        url: str,
        *,
        heartbeat: timedelta = timedelta(seconds=30),
        admission: AdmissionControl | None = None,
    ) -> None:
        self.url = url
        self.heartbeat = heartbeat
        self.admission = admission or AdmissionControl()

    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        if not tickets:
            return
        await fetch_rows(session, ENQUEUE, enqueue_parameters(tickets, after))
        notify_after_commit(session, TICKETS_CHANNEL)

    async def get_remaining_capacity(self, session: AsyncSession) -> int:
        return await self.admission.get_remaining_capacity(session, current_tenant_id(session))

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        await self.admission.admit(session, current_tenant_id(session), count)

    async def consume(
        self, deliver: TicketHandler, *, concurrency: int, stop: asyncio.Event
    ) -> None:
        """See `RunQueue`. Raises `DatabaseUnavailable` if the database cannot be reached at the
        start, and `ConfigurationError` if it has no tables.
        """
        pool = asyncpg.create_pool(self.url, min_size=1, max_size=2, reset=_no_reset)
        with translate_connection_errors():
            await pool
        try:
            await self._consume(pool, deliver, WorkerSlots.for_work(concurrency), stop)
        except asyncpg.UndefinedTableError as error:
            raise ConfigurationError(SCHEMA_MISSING) from error
        finally:
            pool.terminate()

    async def _consume(
        self, pool: asyncpg.Pool, deliver: TicketHandler, slots: WorkerSlots, stop: asyncio.Event
    ) -> None:
        kinds: dict[SlotKind, WorkerSlots] = {
            "work": slots,
            "delivery": DELIVERY_SLOTS,
            "document": DOCUMENT_SLOTS,
        }
        consumers = [
            Consumer(TicketSource(pool, slots, kind, self.heartbeat), deliver, stop)
            for kind, slots in kinds.items()
        ]

        async def wake_on_stop() -> None:
            await stop.wait()
            for consumer in consumers:
                consumer.wake()

        running = [asyncio.create_task(consumer.run()) for consumer in consumers]
        helpers = [
            asyncio.create_task(self._listen(consumers)),
            asyncio.create_task(wake_on_stop()),
        ]
        try:
            await asyncio.gather(*running)
        finally:
            for task in (*running, *helpers):
                task.cancel()
            await asyncio.gather(*running, *helpers, return_exceptions=True)

    async def _listen(self, consumers: Sequence[Consumer]) -> None:
        """Listen on a connection of its own, and open it again when it breaks: meanwhile, the
        consumers poll.
        """

        def wake(*_notification: object) -> None:
            for consumer in consumers:
                consumer.wake()

        while True:
            is_closed = asyncio.Event()
            try:
                connection = await asyncpg.connect(self.url)
                try:
                    connection.add_termination_listener(lambda _, e=is_closed: e.set())
                    channel = await channel_name(connection, TICKETS_CHANNEL)
                    await connection.add_listener(channel, wake)
                    wake()
                    await is_closed.wait()
                finally:
                    connection.terminate()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                log.warning("queue_listener_lost", error=driver_message(error))
            await asyncio.sleep(RECONNECT_SECONDS)


async def _no_reset(_connection: object) -> None:
    """Saves asyncpg's reset, a round trip per use: the queue changes no session state."""
