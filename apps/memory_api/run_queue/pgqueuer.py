"""The run queue on pgqueuer: SKIP LOCKED, LISTEN/NOTIFY, heartbeats (docs/decisions/queue.md).

pgqueuer dequeues the oldest ticket first, whatever its tenant. `FairQueries` replaces its
statements to share the workers fairly between tenants (docs/decisions/fairness.md). pgqueuer's
listener, heartbeats, schedules and graceful shutdown are used as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import asyncpg
import structlog
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job, Schedule
from pgqueuer.ports.driver import NotifyCallback
from pgqueuer.queries import Queries
from pgqueuer.types import QueueManagerId
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import asyncpg_connection, current_tenant_id
from memory_api.core.db_errors import (
    SCHEMA_MISSING,
    DatabaseUnavailable,
    driver_message,
    translate_connection_errors,
)
from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import read_sql
from memory_api.core.tracing import current_traceparent
from memory_api.run_queue.admission import AdmissionControl
from memory_api.run_queue.port import ScheduledCallback, Ticket, TicketHandler

log = structlog.get_logger()

ENTRYPOINT = "run"
TABLE_CHANGED = "table_changed_event"
"""The type of the notifications of `migrations/sql/queue.sql`."""
ENQUEUE = read_sql("run_queue/queue.sql", "enqueue")
TAKE_TICKETS = read_sql("run_queue/queue.sql", "take_tickets")
RETURN_TICKET = read_sql("run_queue/queue.sql", "return_ticket")
DELETE_TICKETS = read_sql("run_queue/queue.sql", "delete_tickets")
MIN_POLL_INTERVAL_SECONDS, MAX_POLL_INTERVAL_SECONDS = 0.02, 0.1
"""Minimum time between two polls of the queue by one worker, and between two deletions of done
tickets, in seconds: of a worker with free slots, and of one with many slots that are mostly taken.
"""
POLL_INTERVAL_SECONDS_PER_SLOT = 0.003
NEVER = timedelta(days=1)
"""Stands for no delayed ticket."""
REDELIVERY_DELAY = timedelta(seconds=2)
"""Delay before a ticket is delivered again after `deliver` raised an error."""
UNREACHABLE_PAUSE_SECONDS = 4.0
"""How long a worker takes no tickets after `deliver` could not reach the database. Longer than
`REDELIVERY_DELAY`, so that a worker that can reach it takes the ticket.
"""


@dataclass(frozen=True)
class WorkerSlots:
    """The number of tickets that a worker process may hold at once.

    One tenant may hold `per_tenant` of the `total`. So slow work of one tenant leaves slots for the
    others.
    """

    per_tenant: int

    @property
    def total(self) -> int:
        return self.per_tenant + max(1, self.per_tenant // 4)


@dataclass
class QueueChanges:
    """Passes the first change of the queue after a poll on to pgqueuer, and no other until the next
    poll, which handles all changes before it. pgqueuer stores each notification and polls once for
    each, so those of a busy queue would arrive faster than it removes them.
    """

    is_poll_due: bool = False

    def pass_on(self, payload: str | bytes | bytearray, callback: NotifyCallback) -> None:
        if TABLE_CHANGED in str(payload):
            if self.is_poll_due:
                return
            self.is_poll_due = True
        callback(payload)


class QueueDriver(AsyncpgPoolDriver):
    """pgqueuer's driver with fewer notifications."""

    def __init__(self, pool: asyncpg.Pool, changes: QueueChanges) -> None:
        super().__init__(pool)
        self._changes = changes

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        await super().add_listener(
            channel, lambda payload: self._changes.pass_on(payload, callback)
        )


@dataclass
class FairQueries(Queries):
    """pgqueuer's statements, replaced where they would not be fair. Writes no log of tickets,
    because the table `runs` has the history of runs.
    """

    slots: WorkerSlots = WorkerSlots(1)
    changes: QueueChanges = field(default_factory=QueueChanges)
    _next_poll_at: float = 0.0
    _held: set[int] = field(default_factory=set[int])
    """IDs of the tickets that this worker has and that are not done."""
    _done: list[int] = field(default_factory=list[int])
    _deletion: asyncio.Task[None] | None = None
    _next_due_at: float | None = None
    """When the next delayed ticket is due, by the clock of the event loop."""

    async def has_table(self, table: str) -> bool:
        """pgqueuer calls this once before the first poll. Raises `ConfigurationError` if the table
        is missing.
        """
        if not await super().has_table(table):
            raise ConfigurationError(SCHEMA_MISSING)
        return True

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: Mapping[Any, Any],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        """Take tickets for all free slots, from the tenants with the fewest taken tickets first."""
        await self._wait_for_poll()
        self.changes.is_poll_due = False
        rows = await self.driver.fetch(
            TAKE_TICKETS,
            queue_manager_id,
            self.slots.total,
            self.slots.per_tenant,
            heartbeat_timeout,
        )
        due_in: Any = rows[0]["next_due_in"]
        now = asyncio.get_running_loop().time()
        self._next_due_at = None if due_in is None else now + due_in
        jobs = [Job.model_validate(row) for row in rows if row["id"] is not None]
        self._held.update(job.id for job in jobs)
        return jobs

    async def _wait_for_poll(self) -> None:
        """Limit the polls: each change of the queue wakes all workers, and one poll handles all
        changes since the last one.
        """
        clock = asyncio.get_running_loop().time
        while (wait := self._next_poll_at - clock()) > 0:  # noqa: ASYNC110 - `pause` may extend it
            await asyncio.sleep(wait)
        self._next_poll_at = clock() + self._interval()

    def pause(self, seconds: float) -> None:
        """Take no tickets for this time."""
        self._next_poll_at = asyncio.get_running_loop().time() + seconds

    def _interval(self) -> float:
        """Seconds between two polls. A worker that is busy leaves a free slot empty for longer, so
        that one statement handles several tickets.
        """
        if len(self._held) < self.slots.per_tenant / 2:
            return MIN_POLL_INTERVAL_SECONDS
        by_slots = POLL_INTERVAL_SECONDS_PER_SLOT * self.slots.per_tenant
        return min(max(by_slots, MIN_POLL_INTERVAL_SECONDS), MAX_POLL_INTERVAL_SECONDS)

    async def eligible_queued_work(self, entrypoints: list[Any]) -> int:
        """None: pgqueuer asks after a poll that found no ticket. Those that wait for a slot are
        found when another ticket ends, because its deletion notifies.
        """
        return 0

    async def next_deferred_eta(self, entrypoints: list[Any]) -> timedelta:
        """Time until the next delayed ticket is due, as of the last poll."""
        if self._next_due_at is None:
            return NEVER
        now = asyncio.get_running_loop().time()
        return timedelta(seconds=max(0.0, self._next_due_at - now))

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: object) -> None:
        self._held.discard(job.id)
        await self.driver.execute(RETURN_TICKET, job.id, delay, job.queue_manager_id)

    async def log_jobs(self, job_status: list[tuple[Job, Any, Any]]) -> None:
        """Delete the tickets that are done. A ticket whose delivery was cut off stays and is
        delivered again after its heartbeat times out.
        """
        self._held.difference_update(job.id for job, *_ in job_status)
        self._done += [job.id for job, status, _ in job_status if status == "successful"]
        if self._done and self._deletion is None:
            self._deletion = asyncio.create_task(self._delete_done())
        if self._deletion is not None:
            await asyncio.shield(self._deletion)

    async def _delete_done(self) -> None:
        """Delete the tickets that are done within an interval."""
        await asyncio.sleep(self._interval())
        done, self._done, self._deletion = self._done, [], None
        await self.driver.execute(DELETE_TICKETS, done)


class PgQueuerRunQueue:
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
        connection = await asyncpg_connection(session)
        payloads = [ticket.encode() for ticket in tickets]
        times = [ticket.enqueued_at for ticket in tickets]
        await connection.execute(ENQUEUE, payloads, times, after, current_traceparent())

    async def get_remaining_capacity(self, session: AsyncSession) -> int:
        return await self.admission.get_remaining_capacity(
            await asyncpg_connection(session), current_tenant_id(session)
        )

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        await self.admission.admit(
            await asyncpg_connection(session), current_tenant_id(session), count
        )

    async def consume(
        self,
        deliver: TicketHandler,
        *,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, ScheduledCallback]],
    ) -> None:
        """See `RunQueue`. All errors of this method are errors of the queue's own connections,
        because `_deliver_or_retry` handles those of `deliver`. Raises `DatabaseUnavailable`.
        """
        with translate_connection_errors():
            await self._consume(deliver, concurrency, stop, schedules)

    async def _consume(
        self,
        deliver: TicketHandler,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, ScheduledCallback]],
    ) -> None:
        async with self._open_queries(WorkerSlots(concurrency)) as queries:
            manager = PgQueuer(queries.driver, queries=queries)

            @manager.entrypoint(ENTRYPOINT)
            async def deliver_job(job: Job) -> None:  # pyright: ignore[reportUnusedFunction]
                delay = await _deliver_or_retry(deliver, job, queries)
                if delay is not None:
                    raise RetryRequested(delay=delay)

            for name, (cron, callback) in schedules.items():
                self._register_schedule(manager, name, cron, callback)
            watcher = asyncio.create_task(self._shut_down_on(stop, manager))
            try:
                await manager.run(
                    batch_size=1,  # `log_jobs` collects the done tickets itself
                    max_concurrent_tasks=None,  # `take_tickets` limits the slots
                    heartbeat_timeout=self.heartbeat,
                    dequeue_timeout=timedelta(seconds=5),
                    log_aggregation_interval=timedelta(0),
                )
            finally:
                watcher.cancel()

    @asynccontextmanager
    async def _open_queries(self, slots: WorkerSlots):
        async with asyncpg.create_pool(self.url, min_size=2, max_size=4, reset=_no_reset) as pool:
            changes = QueueChanges()
            yield FairQueries(QueueDriver(pool, changes), slots=slots, changes=changes)

    @staticmethod
    async def _shut_down_on(stop: asyncio.Event, manager: PgQueuer) -> None:
        await stop.wait()
        manager.shutdown.set()

    @staticmethod
    def _register_schedule(
        manager: PgQueuer, name: str, cron: str, callback: ScheduledCallback
    ) -> None:
        @manager.schedule(name, cron)
        async def run_callback(schedule: Schedule) -> None:  # pyright: ignore[reportUnusedFunction]
            await callback()


async def _no_reset(_connection: object) -> None:
    """Saves asyncpg's reset, a round trip per use: the queue changes no session state."""


async def _deliver_or_retry(
    deliver: TicketHandler, job: Job, queries: FairQueries
) -> timedelta | None:
    """Return the delay that `deliver` asks for, or `REDELIVERY_DELAY` if it raises."""
    try:
        traceparent = (job.otel_headers() or {}).get("traceparent")
        ticket = Ticket.decode(job.payload or b"", str(traceparent) if traceparent else None)
        return await deliver(ticket)
    except DatabaseUnavailable as error:
        log.warning("database_unavailable", ticket=job.id, error=driver_message(error))
        queries.pause(UNREACHABLE_PAUSE_SECONDS)
        return REDELIVERY_DELAY
    except Exception as error:
        log.error("delivery_failed", ticket=job.id, error=str(error), exc_info=True)
        return REDELIVERY_DELAY
