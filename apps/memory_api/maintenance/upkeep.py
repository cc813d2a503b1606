"""Upkeep of one tenant, every five minutes. Every part is safe to repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.queries import is_tenant_active
from memory_api.budgets.reservations import settle_expired
from memory_api.core.db import current_tenant_id, transaction_time
from memory_api.core.ids import new_id
from memory_api.core.settings import Settings
from memory_api.core.statements import fetch_rows, fetch_value, load_statement
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.curation.cleanup import enqueue_cleanups
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.maintenance.reindexing import delete_old_vectors, retokenize_tenant
from memory_api.maintenance.retention.expiry import delete_expired_rows, next_expiry
from memory_api.maintenance.tasks import PERIODS, TASKS, scheduled_tasks
from memory_api.memories.index.writer import fold_scope_stats
from memory_api.playbooks.inbox.inbox import queue_missing_curations
from memory_api.playbooks.queries import count_uses
from memory_api.run_queue.port import Ticket, slots_of
from memory_api.run_queue.upkeep_schedule import drop_upkeep, finish_upkeep
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_learning_runs, enqueue_runs, enqueue_shared_run
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.queries import delete_finished_runs, has_queued_run, latest_done_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.open_traces import close_idle
from memory_api.traces.queries import list_stale_open_traces
from memory_api.traces.storage import is_ready_for_learning
from memory_api.webhooks.queries import delete_finished_deliveries

log = structlog.get_logger()

UPKEEP = "upkeep"
LOST_AFTER = timedelta(minutes=15)
UPKEEP_RUN_RETENTION = timedelta(days=1)
DELIVERY_RETENTION = timedelta(days=30)
"""How long the log of webhooks keeps a delivery that has ended."""
MAX_IDLE_SECONDS = 3600.0
"""After this time without a new event, an open trace is closed."""

USES_COUNTED_UNTIL = "uses_counted_until"
"""In the result of an upkeep run: the retrievals up to this time are in the use counts."""
USE_COUNT_DELAY = timedelta(seconds=10)
"""Retrievals younger than this are left to the next run: they may not be committed yet."""

TENANTS_PER_CLAIM = 500
NEXT_UPKEEP = load_statement("maintenance/maintenance.sql", "next_upkeep")
START_PERIOD = load_statement("maintenance/maintenance.sql", "start_period")
LOST_RUNS = load_statement("maintenance/maintenance.sql", "list_lost_runs")


async def enqueue_upkeep(runtime: Runtime) -> None:
    """Enqueues a run for each tenant whose upkeep is due, so that no tenant waits for another."""
    for tenant_id in await claim_due_tenants(runtime):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            if not await is_tenant_active(session):
                await drop_upkeep(session, tenant_id)
            # A run queued for longer has lost its ticket; the new run enqueues it again.
            elif not await has_queued_run(session, UPKEEP, datetime.now(UTC) - LOST_AFTER):
                await enqueue_run(runtime, session, UPKEEP)


async def claim_due_tenants(runtime: Runtime) -> list[UUID]:
    """The tenants whose upkeep is due now. Each is claimed by one process."""
    tenant_ids: list[UUID] = []
    while claimed := await runtime.upkeep_schedule.claim_due(TENANTS_PER_CLAIM):
        tenant_ids += claimed
        if len(claimed) < TENANTS_PER_CLAIM:
            break
    return tenant_ids


async def enqueue_run(
    runtime: Runtime, session: AsyncSession, kind: str, input: dict[str, Any] | None = None
) -> RunRow:
    """Enqueues a maintenance run of the session's tenant."""
    run = lifecycle.new_run(session, kind, project_id="default", input=input)
    await enqueue_runs(runtime.queue, session, run)
    return run


@dataclass(frozen=True)
class UpkeepDone:
    """What the batches of an upkeep did, and when it began."""

    started_at: datetime
    data: dict[str, Any]


class UpkeepStep(Step[datetime, UpkeepDone, StepResult]):
    """Runs the upkeep of the run's tenant, starts its scheduled tasks that are due, and says when
    upkeep is due again.
    """

    kind = UPKEEP
    can_resume = True

    async def load(self, session: AsyncSession, run: RunRow) -> datetime:
        return await transaction_time(session)

    async def compute(self, runtime: Runtime, run: RunRow, input: datetime) -> UpkeepDone:
        tenant_id = run.tenant_id
        async with runtime.sessions.for_tenant(tenant_id) as session:
            data: dict[str, Any] = {
                "traces_closed": await close_stale_traces(runtime, session),
                "runs_requeued": await requeue_lost_runs(runtime, session, run.id),
            }
            await fold_scope_stats(session)
            data["cleanups_enqueued"] = await enqueue_cleanups(runtime, session)
        data["curations_enqueued"] = await enqueue_missing_curations(runtime, tenant_id)
        data |= await delete_expired_rows(runtime, tenant_id)
        async with runtime.sessions.for_tenant(tenant_id) as session:
            data["reservations_expired"] = await settle_expired(session, datetime.now(UTC))
        data["memories_retokenized"] = await retokenize_tenant(runtime, tenant_id)
        data |= await delete_retired_vectors(runtime, tenant_id)
        return UpkeepDone(input, data)

    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: UpkeepDone
    ) -> StepResult:
        data = output.data | {
            "tasks_started": await start_due_tasks(runtime, session),
            USES_COUNTED_UNTIL: await count_new_uses(session),
        }
        await delete_finished_runs(session, datetime.now(UTC) - UPKEEP_RUN_RETENTION)
        await delete_finished_deliveries(session, datetime.now(UTC) - DELIVERY_RETENTION)
        next_at = await next_upkeep(session, runtime.settings, run.id)
        await finish_upkeep(session, run.tenant_id, output.started_at, next_at)
        return StepResult(data=data)


async def next_upkeep(session: AsyncSession, settings: Settings, run_id: UUID) -> datetime:
    """When the tenant needs upkeep again if nothing happens until then. For what expires it is the
    next start of the task `retention`, which deletes once a day.
    """
    due_at: datetime = await fetch_value(
        session,
        NEXT_UPKEEP,
        {
            "tenant": current_tenant_id(session),
            "run_id": run_id,
            "idle_seconds": MAX_IDLE_SECONDS,
        },
    )
    expires_at = await next_expiry(session, settings)
    if expires_at is None:
        return due_at
    task = TASKS["retention"]
    retention_at = task.period_start(await transaction_time(session)) + PERIODS[task.period]
    return min(due_at, max(retention_at, task.period_start(expires_at) + PERIODS[task.period]))


async def start_due_tasks(runtime: Runtime, session: AsyncSession) -> list[str]:
    """Starts each scheduled task of the tenant that has not started in its period. Returns their
    names. Any number of processes start one run per period, because they change the same row.
    """
    now = await transaction_time(session)
    started: list[str] = []
    for task in scheduled_tasks(runtime.settings):
        run_id = new_id()
        parameters = {
            "tenant": current_tenant_id(session),
            "task": task.name,
            "run_id": run_id,
            "period_start": task.period_start(now),
        }
        if await fetch_value(session, START_PERIOD, parameters) is not None:
            await enqueue_runs(runtime.queue, session, task.new_run(session, run_id=run_id))
            started.append(task.name)
    return started


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
    """Closes traces without new events and starts their learning where reflection is enabled.
    Nobody knows how such a run ended: it has an outcome only if one was recorded, and its metadata
    state the reason.
    """
    settings = runtime.settings
    traces = await list_stale_open_traces(session, MAX_IDLE_SECONDS)
    projects: dict[UUID, str] = {}
    for trace in traces:
        close_idle(trace)
        should_learn = is_ready_for_learning(
            trace.state, trace.outcome, trace.ground_truth, trace.test_report, "auto"
        )
        if should_learn and settings.reflective_memory_enabled:
            projects[trace.id] = trace.project_id
    await enqueue_learning_runs(
        runtime.queue, session, projects, reflect="auto", max_attempts=settings.max_attempts
    )
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
    tenant_id = current_tenant_id(session)
    parameters = {"tenant": tenant_id, "except_run_id": except_run_id}
    rows = await fetch_rows(session, LOST_RUNS, parameters)
    tickets = [Ticket(tenant_id, run_id, slots=slots_of(kind)) for run_id, kind in rows]
    await runtime.queue.enqueue(session, tickets)
    return len(tickets)
