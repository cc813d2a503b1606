"""Housekeeping of one tenant, every five minutes: traces left open are closed, runs nobody queued
are queued, statistics are folded; old servings and idempotency keys are forgotten; what an older
tokeniser indexed is indexed again; vectors of a model moved away from go, and vector indexes are
kept. Each part is safe to repeat.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.curator.upkeep import KIND as TIDY
from apps.memory_api.curator.upkeep import queue_untidy
from apps.memory_api.embeddings.port import EmbedderFailed
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import begin, first_run
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import forget_done, is_queued
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.put import fold_statistics
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.queries import active_tenants
from apps.memory_api.traces.ingest import is_learnt_from
from apps.memory_api.traces.queries import stale_open_traces
from apps.memory_api.traces.stream import time_out
from apps.memory_api.workers.backfill import clear_old
from apps.memory_api.workers.forget import forget_keys, forget_reservations, forget_servings
from apps.memory_api.workers.index import keep_indexes
from apps.memory_api.workers.retokenise import retokenise

log = structlog.get_logger()

KIND = "upkeep"
PATIENCE = timedelta(minutes=15)
KEPT = timedelta(days=1)
OPEN_FOR = 3600.0
"""Seconds without a new event after which an open trace ends as `timeout`."""

LOST = load(__file__, "lost_runs.sql")


async def fan_out(runtime: Runtime) -> None:
    """One run per active tenant, so that no tenant waits for another."""
    async with runtime.sessions.shared() as session:
        tenants = await active_tenants(session)
    for tenant_id in tenants:
        async with runtime.sessions.tenant(tenant_id) as session:
            # One that waits for longer has lost its ticket; the new run will queue it again.
            if not await is_queued(session, KIND, datetime.now(UTC) - PATIENCE):
                run = runs.new_run(session, KIND, project_id="default")
                await session.flush()
                await runtime.queue.enqueue(session, [Ticket(tenant_id, run.id)])


async def run(runtime: Runtime, run: Run) -> None:
    """One round for the run's tenant."""
    tenant_id = run.tenant_id
    async with runtime.sessions.tenant(tenant_id) as session:
        done: dict[str, Any] = {
            "timed_out": await close_left_open(runtime, session),
            "requeued": await requeue_lost(runtime, session, run.id),
        }
        await fold_statistics(session)
        done["untidy"] = await queue_untidy(runtime, session)
        for kind in (KIND, TIDY):
            await forget_done(session, kind, datetime.now(UTC) - KEPT)
    done["servings_forgotten"] = await forget_servings(runtime, tenant_id)
    done["keys_forgotten"] = await forget_keys(runtime, tenant_id)
    done["reservations_forgotten"] = await forget_reservations(runtime, tenant_id)
    done["retokenised"] = await retokenise(runtime, tenant_id)
    done |= await clear_vectors(runtime, tenant_id)
    done["indexes"] = await keep_indexes(runtime.sessions, runtime.settings.owner_url, tenant_id)
    async with runtime.sessions.tenant(tenant_id) as session:
        await runs.finish(session, run, done)


async def clear_vectors(runtime: Runtime, tenant_id: UUID) -> dict[str, Any]:
    """Take old vectors away. An embedder that does not answer holds up nothing else: it is told,
    and the next round tries again.
    """
    try:
        return {"vectors_dropped": await clear_old(runtime, tenant_id)}
    except EmbedderFailed as error:
        log.warning("old_vectors_kept", tenant_id=str(tenant_id), error=str(error))
        return {"vectors_dropped": 0, "vectors_error": str(error)}


async def close_left_open(runtime: Runtime, session: AsyncSession) -> int:
    """End traces that were left open, and learn from them where reflection is on."""
    settings = runtime.settings
    left = await stale_open_traces(session, OPEN_FOR)
    for trace in left:
        time_out(trace)
        wanted = is_learnt_from(trace.state, trace.outcome, "auto")
        if wanted and settings.reflective_memory_enabled:
            run = first_run(
                session,
                project_id=trace.project_id,
                trace_id=trace.id,
                reflect="auto",
                max_attempts=settings.max_attempts,
            )
            await begin(runtime.queue, session, run)
    return len(left)


async def requeue_lost(runtime: Runtime, session: AsyncSession, but: UUID) -> int:
    """Runs whose ticket was lost: queued or held by nobody for long, with nothing in the queue."""
    rows = await session.execute(LOST, {"tenant": tenant_of(session), "but": but})
    tickets = [Ticket(tenant_of(session), run_id) for (run_id,) in rows]
    await runtime.queue.enqueue(session, tickets)
    return len(tickets)
