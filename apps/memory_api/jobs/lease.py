"""Holding a run while it is worked on: a heartbeat extends the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import structlog

from apps.memory_api.core.db import Sessions
from apps.memory_api.jobs.runs import extend
from apps.memory_api.jobs.tables import Run

log = structlog.get_logger()


@asynccontextmanager
async def held(sessions: Sessions, run: Run, lease: timedelta) -> AsyncGenerator[None]:
    """Extend the lease three times as often as it would run out. When it is lost, finishing the run
    raises `LeaseLost`.
    """

    async def beat() -> None:
        while True:
            await asyncio.sleep(lease.total_seconds() / 3)
            try:
                async with sessions.tenant(run.tenant_id) as session:
                    if not await extend(session, run, lease):
                        log.warning("lease_lost", run_id=str(run.id))
                        return
            except Exception as error:  # the next beat, or the end of the lease, decides
                log.warning("heartbeat_failed", run_id=str(run.id), error=str(error))

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
