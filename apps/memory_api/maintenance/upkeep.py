"""Upkeep of one tenant, every five minutes. Every part is safe to repeat."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.auth.queries import list_active_tenant_ids
from apps.memory_api.budgets.reservations import settle_expired
from apps.memory_api.core.db import current_tenant_id, transaction_time
from apps.memory_api.core.resources import load_sql
from apps.memory_api.curation.cleanup import CLEANUP, enqueue_cleanups
from apps.memory_api.embeddings.port import EmbedderUnavailable
from apps.memory_api.maintenance.reindexing import delete_old_vectors, retokenize_tenant
from apps.memory_api.maintenance.retention import (
    delete_expired_idempotency_keys,
    delete_old_reservations,
    delete_old_retrievals,
    delete_old_stored_replies,
    delete_old_totals,
)
from apps.memory_api.maintenance.vector_indexes import sync_vector_indexes
from apps.memory_api.memories.index.scopes import acquire_tenant_lock
from apps.memory_api.memories.index.writer import fold_scope_stats
from apps.memory_api.playbooks.inbox.inbox import queue_missing_curations
from apps.memory_api.playbooks.queries import count_uses
from apps.memory_api.run_queue.port import Ticket
from apps.memory_api.runs import lifecycle
from apps.memory_api.runs.chain import enqueue_runs, enqueue_shared_run, new_learning_run
from apps.memory_api.runs.lifecycle import StepResult
from apps.memory_api.runs.queries import delete_finished_runs, has_queued_run, latest_done_run
from apps.memory_api.runs.tables import RunRow
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.open_traces import time_out_trace
from apps.memory_api.traces.queries import list_stale_open_traces
from apps.memory_api.traces.storage import is_ready_for_learning

log = structlog.get_logger()

UPKEEP = "upkeep"
LOST_AFTER = timedelta(minutes=15)
UPKEEP_RUN_RETENTION = timedelta(days=1)
MAX_IDLE_SECONDS = 3600.0
"""After this time without a new event, an open trace ends with outcome `timeout`."""

USES_COUNTED_UNTIL = "uses_counted_until"
"""In the result of an upkeep run: the retrievals up to this time are in the use counts."""
USE_COUNT_DELAY = timedelta(seconds=10)
"""Retrievals younger than this are left to the next run: they may not be committed yet."""

LOST_RUNS = load_sql("maintenance/maintenance.sql", "list_lost_runs")


async def enqueue_upkeep(runtime: Runtime) -> None:
    """Enqueues one run per active tenant, so that no tenant waits for another."""
    async with runtime.sessions.without_tenant() as session:
        tenant_ids = await list_active_tenant_ids(session)
    for tenant_id in tenant_ids:
        async with runtime.sessions.for_tenant(tenant_id) as session:
            # A run queued for longer has lost its ticket; the new run enqueues it again.
            if not await has_queued_run(session, UPKEEP, datetime.now(UTC) - LOST_AFTER):
                run = lifecycle.new_run(session, UPKEEP, project_id="default")
                await session.flush()
                await runtime.queue.enqueue(session, [Ticket(tenant_id, run.id)])


async def run_upkeep(runtime: Runtime, run: RunRow) -> None:
    """Runs all upkeep tasks for the run's tenant."""
    tenant_id = run.tenant_id
    async with runtime.sessions.for_tenant(tenant_id) as session:
        result: dict[str, Any] = {
            "traces_timed_out": await close_stale_traces(runtime, session),
            "runs_requeued": await requeue_lost_runs(runtime, session, run.id),
        }
        await fold_scope_stats(session)
        result["cleanups_enqueued"] = await enqueue_cleanups(runtime, session)
    result["curations_enqueued"] = await enqueue_missing_curations(runtime, tenant_id)
    result["retrievals_deleted"] = await delete_old_retrievals(runtime, tenant_id)
    result["idempotency_keys_deleted"] = await delete_expired_idempotency_keys(runtime, tenant_id)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        result["reservations_expired"] = await settle_expired(session, datetime.now(UTC))
    result["reservations_deleted"] = await delete_old_reservations(runtime, tenant_id)
    result["stored_replies_deleted"] = await delete_old_stored_replies(runtime, tenant_id)
    result["budget_totals_deleted"] = await delete_old_totals(runtime, tenant_id)
    result["memories_retokenized"] = await retokenize_tenant(runtime, tenant_id)
    result |= await delete_retired_vectors(runtime, tenant_id)
    result["vector_indexes"] = await sync_vector_indexes(
        runtime.sessions, runtime.settings.owner_url, tenant_id
    )
    async with runtime.sessions.for_tenant(tenant_id) as session:
        result[USES_COUNTED_UNTIL] = await count_new_uses(session)
        for kind in (UPKEEP, CLEANUP):
            await delete_finished_runs(session, kind, datetime.now(UTC) - UPKEEP_RUN_RETENTION)
        await lifecycle.finish_run(session, run, StepResult(data=result))


async def count_new_uses(session: AsyncSession) -> str:
    """Add the retrievals since the last upkeep to the use counts of their bullets; the time up to
    which they are counted now (ISO 8601). Call it in the transaction that finishes the run with
    this time, so that each retrieval counts once.
    """
    await acquire_tenant_lock(session, "uses")  # two upkeep runs may overlap
    last_run = await latest_done_run(session, UPKEEP)
    counted_until: str | None = last_run.result.get(USES_COUNTED_UNTIL) if last_run else None
    since = datetime.fromisoformat(counted_until) if counted_until else datetime.min
    until = await transaction_time(session) - USE_COUNT_DELAY
    await count_uses(session, since.replace(tzinfo=UTC), until)
    return until.isoformat()


async def delete_retired_vectors(runtime: Runtime, tenant_id: UUID) -> dict[str, Any]:
    """Deletes vectors of retired models. If the embedding model is unavailable, logs it; the next
    round tries again.
    """
    try:
        return {"vectors_deleted": await delete_old_vectors(runtime, tenant_id)}
    except EmbedderUnavailable as error:
        log.warning("vector_deletion_postponed", tenant_id=str(tenant_id), error=str(error))
        return {"vectors_deleted": 0, "vectors_error": str(error)}


async def close_stale_traces(runtime: Runtime, session: AsyncSession) -> int:
    """Times out traces without new events and starts their learning where reflection is enabled."""
    settings = runtime.settings
    traces = await list_stale_open_traces(session, MAX_IDLE_SECONDS)
    for trace in traces:
        time_out_trace(trace)
        should_learn = is_ready_for_learning(trace.state, trace.outcome, "auto")
        if should_learn and settings.reflective_memory_enabled:
            run = new_learning_run(
                session,
                project_id=trace.project_id,
                trace_id=trace.id,
                reflect="auto",
                max_attempts=settings.max_attempts,
            )
            await enqueue_runs(runtime.queue, session, run)
    return len(traces)


async def enqueue_missing_curations(runtime: Runtime, tenant_id: UUID) -> int:
    """Enqueues a curation for lessons whose curation died. Returns the number of curations."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        queued = await queue_missing_curations(session)
        for run in queued:
            await enqueue_shared_run(runtime.queue, session, run)
    return len(queued)


async def requeue_lost_runs(runtime: Runtime, session: AsyncSession, except_run_id: UUID) -> int:
    """Enqueues runs that are queued or whose lease has expired, and that have no ticket in the
    queue.
    """
    rows = await session.execute(
        LOST_RUNS, {"tenant": current_tenant_id(session), "except_run_id": except_run_id}
    )
    tickets = [Ticket(current_tenant_id(session), run_id) for (run_id,) in rows]
    await runtime.queue.enqueue(session, tickets)
    return len(tickets)
