"""The run queue on pgqueuer: SKIP LOCKED, LISTEN/NOTIFY, heartbeats (docs/decisions/queue.md).

pgqueuer dequeues the oldest ticket first, whatever its tenant. `FairQueries` replaces its
statements to share the workers fairly between tenants (docs/decisions/fairness.md). pgqueuer's
listener, heartbeats, schedules and graceful shutdown are used as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import structlog
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job, Schedule
from pgqueuer.queries import Queries
from pgqueuer.types import QueueManagerId
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import asyncpg_connection, current_tenant_id
from apps.memory_api.core.db_errors import SCHEMA_MISSING, translate_connection_errors
from apps.memory_api.core.errors import ConfigurationError
from apps.memory_api.core.resources import read_sql
from apps.memory_api.core.tracing import current_traceparent
from apps.memory_api.run_queue.admission import AdmissionControl
from apps.memory_api.run_queue.port import ScheduledCallback, Ticket, TicketHandler

log = structlog.get_logger()

ENTRYPOINT = "run"
ENQUEUE = read_sql("run_queue/queue.sql", "enqueue")
TAKE_TICKETS = read_sql("run_queue/queue.sql", "take_tickets")
RETURN_TICKET = read_sql("run_queue/queue.sql", "return_ticket")
DELETE_TICKETS = read_sql("run_queue/queue.sql", "delete_tickets")
MIN_POLL_INTERVAL_SECONDS = 0.02
"""Minimum time between two polls of the queue by one worker, in seconds."""
REDELIVERY_DELAY = timedelta(seconds=2)
"""Delay before a ticket is delivered again after `deliver` raised an error."""


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
class FairQueries(Queries):
    """pgqueuer's statements, replaced where they would not be fair. Writes no log of tickets,
    because the table `runs` has the history of runs.
    """

    slots: WorkerSlots = WorkerSlots(1)
    _next_poll_at: float = 0.0

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
        rows = await self.driver.fetch(
            TAKE_TICKETS,
            queue_manager_id,
            self.slots.total,
            self.slots.per_tenant,
            heartbeat_timeout,
        )
        return [Job.model_validate(row) for row in rows]

    async def _wait_for_poll(self) -> None:
        """Limit the polls: each change of the queue wakes all workers, and one poll handles all
        changes since the last one.
        """
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._next_poll_at - clock())
        self._next_poll_at = clock() + MIN_POLL_INTERVAL_SECONDS

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: object) -> None:
        await self.driver.execute(RETURN_TICKET, job.id, delay, job.queue_manager_id)

    async def log_jobs(self, job_status: list[tuple[Job, Any, Any]]) -> None:
        """Delete the tickets that are done. A ticket whose delivery was cut off stays and is
        delivered again after its heartbeat times out.
        """
        done = [job.id for job, status, _ in job_status if status == "successful"]
        if done:
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
        async with self._open_manager(WorkerSlots(concurrency)) as manager:

            @manager.entrypoint(ENTRYPOINT)
            async def deliver_job(job: Job) -> None:  # pyright: ignore[reportUnusedFunction]
                delay = await _deliver_or_retry(deliver, job)
                if delay is not None:
                    raise RetryRequested(delay=delay)

            for name, (cron, callback) in schedules.items():
                self._register_schedule(manager, name, cron, callback)
            watcher = asyncio.create_task(self._shut_down_on(stop, manager))
            try:
                await manager.run(
                    batch_size=1,  # a finished ticket frees its slot at once
                    max_concurrent_tasks=None,  # `take_tickets` limits the slots
                    heartbeat_timeout=self.heartbeat,
                    dequeue_timeout=timedelta(seconds=5),
                    log_aggregation_interval=timedelta(0),
                )
            finally:
                watcher.cancel()

    @asynccontextmanager
    async def _open_manager(self, slots: WorkerSlots):
        async with asyncpg.create_pool(self.url, min_size=2, max_size=4, reset=_no_reset) as pool:
            driver = AsyncpgPoolDriver(pool)
            yield PgQueuer(driver, queries=FairQueries(driver, slots=slots))

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


async def _deliver_or_retry(deliver: TicketHandler, job: Job) -> timedelta | None:
    """Return the delay that `deliver` asks for, or `REDELIVERY_DELAY` if it raises."""
    try:
        traceparent = (job.otel_headers() or {}).get("traceparent")
        ticket = Ticket.decode(job.payload or b"", str(traceparent) if traceparent else None)
        return await deliver(ticket)
    except Exception as error:
        log.error("delivery_failed", ticket=job.id, error=str(error), exc_info=True)
        return REDELIVERY_DELAY
