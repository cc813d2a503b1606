"""The queue over pgqueuer: SKIP LOCKED, LISTEN/NOTIFY, heartbeats (docs/decisions/queue.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.models import Job, Schedule
from pgqueuer.queries import Queries
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import raw_connection
from apps.memory_api.jobs.port import Deliver, Tick, Ticket

ENTRYPOINT = "run"


class PgQueue:
    """The worker dequeues and listens at `url`; enqueueing uses the caller's connection."""

    def __init__(self, url: str, *, heartbeat: timedelta = timedelta(seconds=30)) -> None:
        self.url = url
        self.heartbeat = heartbeat

    async def enqueue(
        self, session: AsyncSession, tickets: Sequence[Ticket], *, after: timedelta | None = None
    ) -> None:
        if not tickets:
            return
        queries = Queries(AsyncpgDriver(await raw_connection(session)))
        count = len(tickets)
        await queries.enqueue(
            [ENTRYPOINT] * count,
            [ticket.encode() for ticket in tickets],
            [0] * count,
            [after] * count,
        )

    async def run(
        self,
        deliver: Deliver,
        *,
        concurrency: int,
        stop: asyncio.Event,
        schedules: dict[str, tuple[str, Tick]],
    ) -> None:
        async with self._manager() as manager:

            @manager.entrypoint(ENTRYPOINT)
            async def work(job: Job) -> None:  # pyright: ignore[reportUnusedFunction]
                wait = await deliver(Ticket.decode(job.payload or b""))
                if wait is not None:
                    raise RetryRequested(delay=wait)

            for name, (cron, tick) in schedules.items():
                self._schedule(manager, name, cron, tick)
            watcher = asyncio.create_task(self._stop_with(stop, manager))
            try:
                await manager.run(
                    batch_size=max(1, concurrency // 2),
                    max_concurrent_tasks=max(2, concurrency),
                    heartbeat_timeout=self.heartbeat,
                    dequeue_timeout=timedelta(seconds=5),
                )
            finally:
                watcher.cancel()

    @asynccontextmanager
    async def _manager(self):
        async with asyncpg.create_pool(self.url, min_size=2, max_size=4) as pool:
            yield PgQueuer(AsyncpgPoolDriver(pool))

    @staticmethod
    async def _stop_with(stop: asyncio.Event, manager: PgQueuer) -> None:
        await stop.wait()
        manager.shutdown.set()

    @staticmethod
    def _schedule(manager: PgQueuer, name: str, cron: str, tick: Tick) -> None:
        @manager.schedule(name, cron)
        async def run_tick(schedule: Schedule) -> None:  # pyright: ignore[reportUnusedFunction]
            await tick()
