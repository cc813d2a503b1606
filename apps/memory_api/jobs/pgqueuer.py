"""The queue over pgqueuer: SKIP LOCKED, LISTEN/NOTIFY, heartbeats (docs/decisions/queue.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import structlog
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job, Schedule
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import raw_connection, tenant_of
from apps.memory_api.core.sql import read
from apps.memory_api.jobs.bounds import Bounds
from apps.memory_api.jobs.port import Deliver, Tick, Ticket
from apps.memory_api.jobs.turns import Seats, TurnQueries

log = structlog.get_logger()

ENTRYPOINT = "run"
ENQUEUE = read(__file__, "enqueue.sql")
BROKEN_OFF = timedelta(seconds=2)
"""When a ticket is delivered again whose delivery ended in an error of ours."""


class PgQueue:
    """The worker dequeues and listens at `url`; enqueueing uses the caller's connection."""

    def __init__(
        self,
        url: str,
        *,
        heartbeat: timedelta = timedelta(seconds=30),
        bounds: Bounds | None = None,
    ) -> None:
        self.url = url
        self.heartbeat = heartbeat
        self.bounds = bounds or Bounds()

    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        if not tickets:
            return
        connection = await raw_connection(session)
        payloads = [ticket.encode() for ticket in tickets]
        await connection.execute(ENQUEUE, payloads, [ticket.begun for ticket in tickets], after)

    async def room(self, session: AsyncSession) -> int:
        return await self.bounds.room(await raw_connection(session), tenant_of(session))

    async def admit(self, session: AsyncSession, count: int = 1) -> None:
        await self.bounds.admit(await raw_connection(session), tenant_of(session), count)

    async def run(
        self,
        deliver: Deliver,
        *,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, Tick]],
    ) -> None:
        async with self._manager(Seats(concurrency)) as manager:

            @manager.entrypoint(ENTRYPOINT)
            async def work(job: Job) -> None:  # pyright: ignore[reportUnusedFunction]
                wait = await _delivered(deliver, job)
                if wait is not None:
                    raise RetryRequested(delay=wait)

            for name, (cron, tick) in schedules.items():
                self._schedule(manager, name, cron, tick)
            watcher = asyncio.create_task(self._stop_with(stop, manager))
            try:
                await manager.run(
                    batch_size=1,  # a settled ticket frees its seat at once
                    max_concurrent_tasks=None,  # take.sql knows the seats
                    heartbeat_timeout=self.heartbeat,
                    dequeue_timeout=timedelta(seconds=5),
                    log_aggregation_interval=timedelta(0),
                )
            finally:
                watcher.cancel()

    @asynccontextmanager
    async def _manager(self, seats: Seats):
        async with asyncpg.create_pool(self.url, min_size=2, max_size=4, reset=_as_it_is) as pool:
            driver = AsyncpgPoolDriver(pool)
            yield PgQueuer(driver, queries=TurnQueries(driver, seats=seats))

    @staticmethod
    async def _stop_with(stop: asyncio.Event, manager: PgQueuer) -> None:
        await stop.wait()
        manager.shutdown.set()

    @staticmethod
    def _schedule(manager: PgQueuer, name: str, cron: str, tick: Tick) -> None:
        @manager.schedule(name, cron)
        async def run_tick(schedule: Schedule) -> None:  # pyright: ignore[reportUnusedFunction]
            await tick()


async def _as_it_is(_connection: object) -> None:
    """Nothing is set in these sessions, so nothing need be reset: it would be a round trip each."""


async def _delivered(deliver: Deliver, job: Job) -> timedelta | None:
    """What `deliver` answers; whatever goes wrong there, the ticket is delivered again."""
    try:
        return await deliver(Ticket.decode(job.payload or b""))
    except Exception as error:
        log.error("delivery_broke_off", ticket=job.id, error=str(error), exc_info=True)
        return BROKEN_OFF
