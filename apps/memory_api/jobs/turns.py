"""Turns between tenants: how tickets are taken from the queue (docs/decisions/fairness.md).

pgqueuer takes the oldest ticket first, whoever's it is. Here its statements are replaced by ours;
its listener, heartbeats, schedules and graceful end stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueManagerId

from apps.memory_api.core.away import NO_TABLES
from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.sql import read

TAKE = read(__file__, "take.sql")
PUT_BACK = read(__file__, "put_back.sql")
SETTLE = read(__file__, "settle.sql")
BETWEEN_LOOKS = 0.02
"""Seconds at least between two looks of a worker. One that has rested so long looks at once."""


@dataclass(frozen=True)
class Seats:
    """How many tickets a worker process holds at once. One tenant never has them all: its slow
    work leaves `spare` seats to the others.
    """

    one_tenant: int

    @property
    def spare(self) -> int:
        return max(1, self.one_tenant // 4)

    @property
    def all(self) -> int:
        return self.one_tenant + self.spare


@dataclass
class TurnQueries(Queries):
    """pgqueuer's statements with ours in their place. It keeps no log: a run's history is in
    `runs`.
    """

    seats: Seats = Seats(1)
    _next_look: float = 0.0

    async def has_table(self, table: str) -> bool:
        """Asked once, before the first look at the queue. Raises `Misconfigured`."""
        if not await super().has_table(table):
            raise Misconfigured(NO_TABLES)
        return True

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: Mapping[Any, Any],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        """Tickets for every free seat, those first whose tenant holds the fewest."""
        await self._rest()
        rows = await self.driver.fetch(
            TAKE, queue_manager_id, self.seats.all, self.seats.one_tenant, heartbeat_timeout
        )
        return [Job.model_validate(row) for row in rows]

    async def _rest(self) -> None:
        """Each change of the queue wakes every worker: one look finds what came while they rest."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._next_look - clock())
        self._next_look = clock() + BETWEEN_LOOKS

    async def retry_job(self, job: Job, delay: timedelta, traceback_record: object) -> None:
        await self.driver.execute(PUT_BACK, job.id, delay, job.queue_manager_id)

    async def log_jobs(self, job_status: list[tuple[Job, Any, Any]]) -> None:
        """A ticket leaves the queue when it is settled and not before. One whose delivery broke off
        keeps its place, and is delivered again when its heartbeat is old.
        """
        settled = [job.id for job, status, _ in job_status if status == "successful"]
        if settled:
            await self.driver.execute(SETTLE, settled)
