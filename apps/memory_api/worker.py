"""The worker process: takes runs from the queue and does them with the handler of their kind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import structlog

from apps.memory_api.core.away import is_away, may_pass, reason
from apps.memory_api.core.collector import settle_collector
from apps.memory_api.core.settings import Settings
from apps.memory_api.curator import upkeep as tidying
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.lease import held
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.errors import LLMError, LLMOverBudget
from apps.memory_api.reflection.insights.run import TRAJECTORY, reflect_trajectory
from apps.memory_api.reflection.transcripts.run import TRANSCRIPT, reflect_transcript
from apps.memory_api.runtime import Runtime, open_runtime
from apps.memory_api.workers import learn, reembed, upkeep
from apps.memory_api.workers.answer import WORKFLOW, answer_query

log = structlog.get_logger()

AWAY_SECONDS = 1.0
"""Between two looks for a database that is away."""

LONGEST_UNPAID = 900.0
"""Seconds between two looks whether a budget allows a run: somebody may have raised it."""

Handler = Callable[[Runtime, Run], Awaitable[Any]]
"""Does a run that is held, and finishes it."""

HANDLERS: dict[str, Handler] = {
    **learn.STEPS,
    WORKFLOW: answer_query,
    TRAJECTORY: reflect_trajectory,
    TRANSCRIPT: reflect_transcript,
    upkeep.KIND: upkeep.run,
    reembed.KIND: reembed.run,
    tidying.KIND: tidying.run_tidy,
}


async def work(runtime: Runtime, ticket: Ticket) -> timedelta | None:
    """Settle one ticket: do its run, or say how long to wait before looking at it again."""
    owner = runtime.new_holder()
    async with runtime.sessions.tenant(ticket.tenant_id) as session:
        claim = await runs.claim(session, ticket.run_id, owner, runtime.lease)
    if claim.run is None:
        return claim.wait
    run, since = claim.run, runtime.gate.clock()
    try:
        async with held(runtime.sessions, run, runtime.lease):
            await HANDLERS[run.kind](runtime, run)
    except asyncio.CancelledError:
        raise
    except runs.LeaseLost:
        return None
    except Exception as error:
        delay = _excuse(runtime, error, since)
        log_failure(run, error, excused=delay is not None)
        async with runtime.sessions.tenant(ticket.tenant_id) as session:
            if delay is not None:
                return await runs.postpone(session, run, error, delay)
            return await runs.fail(session, run, error)
    return None


def _excuse(runtime: Runtime, error: Exception, since: float) -> timedelta | None:
    """How long to wait when it is not the run's fault: its provider is away, its tenant's budget
    is spent, or the database was (a deadlock, a lock not got in time, a restart).
    """
    if not isinstance(error, LLMError) and may_pass(error):
        return timedelta(seconds=random.uniform(1.0, 2.0))
    if isinstance(error, LLMOverBudget):
        seconds = min(error.retry_after or LONGEST_UNPAID, LONGEST_UNPAID)
        return timedelta(seconds=seconds * random.uniform(1.0, 1.1))
    if isinstance(error, LLMError) and runtime.gate.excuses(error, since):
        return _later(runtime)
    return None


def log_failure(run: Run, error: Exception, *, excused: bool) -> None:
    about = {"run_id": str(run.id), "kind": run.kind, "error": str(error)}
    if excused:
        log.warning("run_postponed", **about)
    else:
        log.error("run_failed", **about, exc_info=True)


def _later(runtime: Runtime) -> timedelta:
    """When the model's provider may be asked again, or up to half as long later, so that not all
    work comes back at once.
    """
    return timedelta(seconds=max(1.0, runtime.gate.wait) * random.uniform(1.0, 1.5))


async def serve(runtime: Runtime, stop: asyncio.Event) -> None:
    """Work until `stop` is set, then finish what is at hand."""

    async def deliver(ticket: Ticket) -> timedelta | None:
        return await work(runtime, ticket)

    async def fan_out() -> None:
        await upkeep.fan_out(runtime)

    await runtime.queue.run(
        deliver,
        concurrency=runtime.settings.worker_concurrency,
        stop=stop,
        schedules={"upkeep": ("*/5 * * * *", fan_out)},
    )


async def main(settings: Settings, database_url: str, stop: asyncio.Event) -> None:
    """Work until told to stop; wait while the database is away."""
    async with open_runtime(settings, database_url, background=True) as runtime:
        settle_collector()
        log.info("worker_started", name=runtime.name)
        while not stop.is_set():
            try:
                await serve(runtime, stop)
            except Exception as error:
                if not is_away(error):
                    raise
                log.warning("database_away", error=reason(error))
                await _pause(stop)
        log.info("worker_stopped", name=runtime.name)


async def _pause(stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), AWAY_SECONDS)
