"""The worker process: claims runs from the queue and executes the step of their kind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api import learning
from memory_api.analytics.login_priority import lower_priority
from memory_api.analytics.queries import end_login_sessions, list_login_sessions
from memory_api.collections.step import CHUNK, ChunkStep
from memory_api.core.db_errors import (
    DatabaseLoginRefused,
    DatabaseUnavailable,
    driver_message,
    is_transient,
)
from memory_api.core.outgoing import AddressRefused
from memory_api.core.tracing import current_traceparent
from memory_api.curation import cleanup
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.erasures.erase import ErasureStep
from memory_api.grace.corrections import CORRECTION, CorrectionStep
from memory_api.grace.interventions import AGENT
from memory_api.grace.step import AgentRunStep
from memory_api.llm.errors import LLMError, LLMOverBudget, LLMTimeout
from memory_api.maintenance import budget_alerts, reembedding, tasks, upkeep
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import claim_unfinished_step
from memory_api.runs.execution import (
    BUDGET_ERRORS,
    RunObservation,
    Step,
    budget_recheck_delay,
    execute_step,
    keep_lease,
    observe_run,
)
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.webhooks.delivery import DeliveryStep, WebhookFailed
from memory_api.webhooks.outbox import WEBHOOK
from memory_api.workflow.step import WORKFLOW, AnswerStep

log = structlog.get_logger()

DATABASE_RETRY_SECONDS = 1.0
"""Pause before the next try to reach an unavailable database."""
MAX_TIMEOUT_POSTPONEMENTS = 8
"""A run whose model call times out more often in a row loses an attempt: a call may be charged."""
UNKNOWN_KIND_DELAY = timedelta(seconds=30)
"""Time until a run of an unknown kind is delivered again, to a newer worker."""
UPKEEP_INTERVAL_SECONDS = 60.0
LOGIN_CHECK_SECONDS = 1.0


Steps = Mapping[str, Step[Any, Any, Any]]
"""Kind of run → how it is executed."""

RUN_STEPS: Steps = {
    **learning.RUN_STEPS,
    WORKFLOW: AnswerStep(),
    CHUNK: ChunkStep(),
    AGENT: AgentRunStep(),
    CORRECTION: CorrectionStep(),
    WEBHOOK: DeliveryStep(),
    upkeep.UPKEEP: upkeep.UpkeepStep(),
    reembedding.KIND: reembedding.ReembedStep(),
    budget_alerts.KIND: budget_alerts.AlertStep(),
    cleanup.CLEANUP: cleanup.CleanupStep(),
    lifecycle.ERASURE: ErasureStep(),
    tasks.MAINTENANCE: tasks.MaintenanceStep(),
}

MAINTENANCE_KINDS = {upkeep.UPKEEP, tasks.MAINTENANCE, lifecycle.ERASURE}
"""Runs that are no activity of their tenant."""


@dataclass(frozen=True)
class RunAttempt:
    """How an attempt of a run ended: with the time to wait before its ticket is delivered again,
    with the next step of its chain, which this process holds, or with neither.
    """

    delay: timedelta | None = None
    next_run: RunRow | None = None


async def process_ticket(
    runtime: Runtime,
    ticket: Ticket,
    steps: Steps = RUN_STEPS,
    *,
    may_continue: Callable[[], bool] = lambda: False,
) -> timedelta | None:
    """Execute the run of a ticket, and as long as `may_continue` the steps that follow it in its
    chain; the next step is queued otherwise. None if the ticket is done, or the time to wait before
    it is delivered again.
    """
    owner = runtime.new_lease_holder()
    async with runtime.sessions.for_tenant(ticket.tenant_id) as session:
        claim = await claim_unfinished_step(session, ticket.run_id, owner, runtime.lease_duration)
        if claim.dead is not None:
            await abandon_run(runtime, session, claim.dead, steps)
    attempt, parent = RunAttempt(claim.wait, claim.run), ticket.traceparent
    while (run := attempt.next_run) is not None:
        with observe_run(run, parent) as observation:
            attempt = await _execute_claimed(runtime, run, steps, observation, may_continue)
            parent = current_traceparent() or parent
    return attempt.delay


async def _execute_claimed(
    runtime: Runtime,
    run: RunRow,
    steps: Steps,
    observation: RunObservation,
    may_continue: Callable[[], bool],
) -> RunAttempt:
    """Execute a claimed run; see `process_ticket`."""
    observation.result = "lease_lost"  # also if this process is stopped: another one takes over
    try:
        async with keep_lease(runtime.sessions, run, runtime.lease_duration):
            next_run = await execute_run(runtime, run, steps, may_continue=may_continue)
    except asyncio.CancelledError:
        raise
    except lifecycle.LeaseLost:
        return RunAttempt()
    except Exception as error:
        delay = postponement_for(run, error)
        log_run_failure(run, error, postponed=delay is not None)
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            if delay is not None:
                observation.result = "postponed"
                return RunAttempt(await lifecycle.postpone_run(session, run, error, delay))
            if isinstance(error, BUDGET_ERRORS):
                observation.result = "failed"
                await lifecycle.fail_permanently(session, run, error)
                await abandon_run(runtime, session, run, steps)
                return RunAttempt()
            retry_delay = await lifecycle.record_failure(session, run, error)
            observation.result = "dead" if retry_delay is None else "retried"
            if retry_delay is None:
                await abandon_run(runtime, session, run, steps)
            return RunAttempt(retry_delay)
    observation.result = "done"
    if run.kind not in MAINTENANCE_KINDS:
        await runtime.upkeep_schedule.mark_active(run.tenant_id)
    return RunAttempt(next_run=next_run)


async def abandon_run(runtime: Runtime, session: AsyncSession, run: RunRow, steps: Steps) -> None:
    """Let the step of a run that has ended as `dead` or `failed` update what it worked on."""
    step = steps.get(run.kind)
    if step is None:
        return
    ended = await session.get(RunRow, (run.tenant_id, run.id), populate_existing=True)
    if ended is not None and ended.state in ("dead", "failed"):  # not if another worker owns it
        error: dict[str, Any] = ended.error or {}
        await step.abandon(runtime, session, ended, str(error.get("message", "unknown")))


async def execute_run(
    runtime: Runtime,
    run: RunRow,
    steps: Steps,
    *,
    may_continue: Callable[[], bool] = lambda: False,
) -> RunRow | None:
    """Execute a run that this process holds. Returns the next step of its chain, if this process
    holds it now. Raises `UnknownRunKind`.
    """
    step = steps.get(run.kind)
    if step is None:
        raise lifecycle.UnknownRunKind(run.kind)
    return (await execute_step(runtime, run, step, may_continue=may_continue)).next_run


def postponement_for(run: RunRow, error: Exception) -> timedelta | None:
    """The delay for a run whose failure has a cause outside it: another run has to end first, the
    provider or the embedder is unavailable, the budget is spent, the worker is older than the run,
    or the database had a transient error (deadlock, lock timeout, restart). None for any other
    failure.
    """
    count = lifecycle.postponement_count(run)
    if isinstance(error, lifecycle.RunBusy):
        return timedelta(seconds=random.uniform(*error.retry_seconds))
    if isinstance(error, lifecycle.UnknownRunKind):
        return UNKNOWN_KIND_DELAY
    if not isinstance(error, LLMError):
        is_passing = isinstance(error, EmbedderUnavailable) or is_transient(error)
        return lifecycle.backoff(count + 1) if is_passing else None
    if isinstance(error, LLMOverBudget):
        return budget_recheck_delay(error)
    if not error.is_outage:
        return None
    if error.pause_seconds:  # not all runs retry at once
        return timedelta(seconds=max(1.0, error.pause_seconds) * random.uniform(1.0, 1.5))
    if isinstance(error, LLMTimeout) and count >= MAX_TIMEOUT_POSTPONEMENTS:
        return None
    return max(lifecycle.FIRST_RETRY_DELAY, lifecycle.backoff(count + 1))


def log_run_failure(run: RunRow, error: Exception, *, postponed: bool) -> None:
    fields = {"run_id": str(run.id), "kind": run.kind, "error": str(error)}
    if isinstance(error, lifecycle.UnknownRunKind):
        if run.kind not in _LOGGED_KINDS:
            _LOGGED_KINDS.add(run.kind)
            log.warning("run_kind_unknown", **fields)
    elif postponed:
        log.warning("run_postponed", **fields)
    elif isinstance(error, WebhookFailed | AddressRefused):
        log.warning("run_failed", **fields)  # a receiver that a tenant chose
    else:
        log.error("run_failed", **fields, exc_info=True)


_LOGGED_KINDS: set[str] = set()
"""Unknown kinds of runs that this process has logged."""


async def process_queue(runtime: Runtime, stop: asyncio.Event, steps: Steps = RUN_STEPS) -> None:
    """Process tickets until `stop` is set, then finish the runs that have begun."""

    async def deliver(ticket: Ticket) -> timedelta | None:
        return await process_ticket(runtime, ticket, steps, may_continue=lambda: not stop.is_set())

    loops = [
        asyncio.create_task(_enqueue_upkeep(runtime)),
        asyncio.create_task(_check_login_sessions(runtime)),
    ]
    try:
        await runtime.queue.consume(
            deliver, concurrency=runtime.settings.worker_concurrency, stop=stop
        )
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def _enqueue_upkeep(runtime: Runtime) -> None:
    """Enqueue the upkeep that is due, about once a minute. Each tenant is claimed by one worker."""
    while True:
        await asyncio.sleep(UPKEEP_INTERVAL_SECONDS * random.uniform(0.5, 1))
        try:
            await upkeep.enqueue_upkeep(runtime)
        except DatabaseUnavailable as error:
            log.warning("database_unavailable", error=driver_message(error))
        except Exception as error:
            log.error("upkeep_failed", error=str(error), exc_info=True)


async def _check_login_sessions(runtime: Runtime) -> None:
    """End the sessions of logins of suspended tenants, and transactions that are open for long. Let
    the others have the CPU time that is left.
    """
    has_failed = False
    while True:
        await asyncio.sleep(LOGIN_CHECK_SECONDS)
        try:
            if count := await end_login_sessions(runtime.sessions):
                log.info("login_sessions_ended", count=count)
            lower_priority(await list_login_sessions(runtime.sessions))
            has_failed = False
        except Exception as error:
            if not has_failed:  # `hansei doctor` names the missing right
                log.warning("login_sessions_not_checked", error=driver_message(error))
            has_failed = True


async def run_worker(runtime: Runtime, stop: asyncio.Event, steps: Steps = RUN_STEPS) -> None:
    """Work until `stop` is set. Waits while the database is unavailable."""
    log.info("worker_started", name=runtime.process_name)
    while not stop.is_set():
        try:
            await process_queue(runtime, stop, steps)
        except DatabaseLoginRefused:
            raise  # waiting does not help
        except DatabaseUnavailable as error:
            log.warning("database_unavailable", error=driver_message(error))
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), DATABASE_RETRY_SECONDS)
    log.info("worker_stopped", name=runtime.process_name)
