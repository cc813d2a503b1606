"""Executes runs: load, compute without a transaction, save and finish in one transaction.

The process that executes a run holds its lease and extends it with a heartbeat. Each attempt is
observed: log lines with the IDs of the run, a span, and metrics.
"""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Literal, TypeVar

import structlog
from opentelemetry.trace import SpanKind
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import Sessions
from memory_api.core.errors import HanseiError
from memory_api.core.isolated_work import TraceTooLarge, WorkTimeout
from memory_api.core.log_context import bound_log_context
from memory_api.core.metrics import LEASE_LOSSES, RUN_DURATION, RUNS
from memory_api.core.tracing import mark_failed, span
from memory_api.llm.deadline import llm_deadline, parse_wait
from memory_api.llm.errors import LLMError, LLMOverBudget
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import enqueue_next_step, enqueue_shared_run, new_next_step
from memory_api.runs.lifecycle import StepResult, extend_lease
from memory_api.runs.standstill import note_held
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

log = structlog.get_logger()

Input = TypeVar("Input")
Output = TypeVar("Output")
Result = TypeVar("Result", bound=StepResult)


SaveInTransaction = Callable[[AsyncSession], Awaitable[None]]
"""Saves the results of a run and finishes it in the transaction of a session."""


class Step(ABC, Generic[Input, Output, Result]):
    """How one kind of run is executed: what it loads, computes and saves. HANSEI_RUN_TIMEOUT limits
    the time of all of it.
    """

    kind: str
    can_resume = False
    """Whether another attempt continues where the last one stopped, because the work is stored
    batch by batch. A run that takes longer than HANSEI_RUN_TIMEOUT then continues after other runs;
    otherwise it ends as `failed`.
    """

    @abstractmethod
    async def load(self, session: AsyncSession, run: RunRow) -> Input:
        """Read all that `compute` needs."""

    @abstractmethod
    async def compute(self, runtime: Runtime, run: RunRow, input: Input) -> Output:
        """Do the work. No transaction is open; it may call a model, and open short transactions."""

    async def store(
        self, runtime: Runtime, run: RunRow, output: Output, save: SaveInTransaction
    ) -> None:
        """Open the transaction of `save`. A step whose last transaction is opened by another
        function overrides this.
        """
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            await save(session)

    @abstractmethod
    async def save(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, output: Output
    ) -> Result:
        """Write the results. `execute_step` finishes the run and queues the next step in the same
        transaction.
        """

    async def after_commit(self, runtime: Runtime, run: RunRow, result: Result) -> None:
        """Work that needs the results to be committed. It is lost if the process dies before it."""

    async def abandon(
        self, runtime: Runtime, session: AsyncSession, run: RunRow, reason: str
    ) -> None:
        """Update what the run worked on, in the transaction that ends it as `dead` or `failed`."""


RunResult = Literal["done", "retried", "postponed", "failed", "dead", "lease_lost"]
"""How an attempt of a run ended."""


@dataclass
class RunObservation:
    """What is reported about one attempt of a run when it ends."""

    result: RunResult = "done"


@contextmanager
def observe_run(run: RunRow, parent: str | None = None) -> Generator[RunObservation]:
    """Report an attempt of a run: its IDs in all log lines, a span, its duration and its result.
    `parent` is the `traceparent` of the request or run that queued it.
    """
    observation, started = RunObservation(), time.perf_counter()
    attributes = {
        "hansei.run_id": str(run.id),
        "hansei.run_kind": run.kind,
        "hansei.tenant_id": str(run.tenant_id),
        "hansei.attempt": run.attempt_count,
    }
    if run.trace_id is not None:
        attributes["hansei.trace_id"] = str(run.trace_id)
    with (
        bound_log_context(
            tenant_id=run.tenant_id, run_id=run.id, trace_id=run.trace_id, kind=run.kind
        ),
        span(
            f"run {run.kind}",
            SpanKind.CONSUMER if parent else SpanKind.INTERNAL,
            parent=parent,
            attributes=attributes,
        ) as active,
    ):
        try:
            yield observation
        finally:
            RUNS.labels(run.kind, observation.result).inc()
            RUN_DURATION.labels(run.kind).observe(time.perf_counter() - started)
            active.set_attribute("hansei.run_result", observation.result)
            if observation.result != "done":
                mark_failed(active, observation.result)


@dataclass(frozen=True)
class StepExecution(Generic[Result]):
    """A finished run. `next_run` is the next step of its chain, if this process holds it."""

    result: Result
    next_run: RunRow | None = None


class RunTimeout(HanseiError):
    """The run took longer than HANSEI_RUN_TIMEOUT and was stopped. It is not retried by itself."""

    status, code = 504, "run_timeout"


class RunUnfinished(lifecycle.RunBusy):
    """The run took longer than HANSEI_RUN_TIMEOUT. It continues after other runs."""


BUDGET_ERRORS = (RunTimeout, WorkTimeout, TraceTooLarge)
"""A retry would take as long: the run ends as `failed`."""


async def execute_step(
    runtime: Runtime,
    run: RunRow,
    step: Step[Input, Output, Result],
    *,
    may_continue: Callable[[], bool] = lambda: False,
) -> StepExecution[Result]:
    """Execute a run that this process holds. Raises `LeaseLost`, `RunTimeout`, `RunUnfinished` and
    what the step raises.

    The next step is queued or, with `may_continue`, held by this process. The caller then executes
    it and keeps the ticket that led to `run`.
    """
    budget = asyncio.timeout(runtime.settings.run_timeout)
    try:
        async with budget:
            return await _execute(runtime, run, step, may_continue)
    except TimeoutError as error:
        if budget.expired():
            raise (RunUnfinished if step.can_resume else RunTimeout) from error
        raise


async def _execute(
    runtime: Runtime,
    run: RunRow,
    step: Step[Input, Output, Result],
    may_continue: Callable[[], bool],
) -> StepExecution[Result]:
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        input = await step.load(session, run)
    output = await step.compute(runtime, run, input)
    finished: StepExecution[Result] | None = None

    async def save(session: AsyncSession) -> None:
        nonlocal finished
        result, next_run = await step.save(runtime, session, run, output), None
        if (step_after := result.next_step) is not None:
            if step_after.delay is None and may_continue():
                next_run = new_next_step(session, run, step_after)
                assert run.lease_owner is not None, "this process holds the run"
                lifecycle.start_in_foreground(next_run, run.lease_owner, runtime.lease_duration)
                await session.flush()
            else:
                await enqueue_next_step(runtime.queue, session, run, step_after)
        if result.queued_run is not None:
            await enqueue_shared_run(runtime.queue, session, result.queued_run)
        await lifecycle.finish_run(session, run, result)
        finished = StepExecution(result, next_run)

    await step.store(runtime, run, output, save)
    assert finished is not None, "`store` calls `save`"
    await step.after_commit(runtime, run, finished.result)
    return finished


async def execute_in_foreground(
    runtime: Runtime, run: RunRow, step: Step[Input, Output, Result], prefer: str
) -> Result:
    """Execute a run that this process holds while the caller waits, as long as the header `Prefer`
    (`wait=N`) or HANSEI_REQUEST_TIMEOUT says.

    A failure is recorded and raised, and a worker retries the run. With
    HANSEI_ON_MODEL_FAILURE=fail, a model's failure ends the run as `failed`. A run that a budget
    does not allow waits until the budget allows it.
    """
    with observe_run(run) as observation:
        try:
            with llm_deadline(parse_wait(prefer, runtime.settings.request_timeout)):
                async with keep_lease(runtime.sessions, run, runtime.lease_duration):
                    return (await execute_step(runtime, run, step)).result
        except Exception as error:
            observation.result = await _record_foreground_failure(runtime, run, error)
            raise


async def _record_foreground_failure(runtime: Runtime, run: RunRow, error: Exception) -> RunResult:
    """Record the failure, and queue the run again if a worker retries it. A run that a budget does
    not allow has a ticket already: the one that is due when its lease would have ended.
    """
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        fails_at_once = isinstance(error, LLMError) and runtime.settings.on_model_failure == "fail"
        if fails_at_once or isinstance(error, BUDGET_ERRORS):
            await lifecycle.fail_permanently(session, run, error)
            return "failed"
        if isinstance(error, LLMOverBudget):
            wait = budget_recheck_delay(error)
            delay = await lifecycle.postpone_run(session, run, error, wait)
            return "lease_lost" if delay is None else "postponed"
        delay = await lifecycle.record_failure(session, run, error)
        if delay is None:
            return "lease_lost" if isinstance(error, lifecycle.LeaseLost) else "dead"
        await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)], after=delay)
        return "retried"


MAX_BUDGET_RECHECK_SECONDS = 900.0
"""A run that a budget does not allow is tried again after this time at the latest, because the
budget may have been raised.
"""


def budget_recheck_delay(error: LLMOverBudget) -> timedelta:
    """Time until a run that a budget does not allow is tried again, up to 10 % of it random."""
    seconds = min(error.retry_after or MAX_BUDGET_RECHECK_SECONDS, MAX_BUDGET_RECHECK_SECONDS)
    return timedelta(seconds=seconds * random.uniform(1.0, 1.1))


@asynccontextmanager
async def keep_lease(sessions: Sessions, run: RunRow, lease: timedelta) -> AsyncGenerator[None]:
    """Extend the lease three times in its length. After it is lost, `finish_run` raises
    `LeaseLost`.
    """
    is_lost = False

    def report_loss() -> None:
        nonlocal is_lost
        if not is_lost:
            is_lost = True
            LEASE_LOSSES.inc()
            log.warning("lease_lost", run_id=str(run.id))

    async def extend_repeatedly() -> None:
        while True:
            await asyncio.sleep(lease.total_seconds() / 3)
            try:
                async with sessions.for_tenant(run.tenant_id) as session:
                    if not await extend_lease(session, run, lease):
                        report_loss()
                        return
            except Exception as error:  # the next heartbeat or the end of the lease decides
                log.warning("heartbeat_failed", run_id=str(run.id), error=str(error))

    task = asyncio.create_task(extend_repeatedly())
    try:
        with note_held(run):
            yield
    except lifecycle.LeaseLost:
        report_loss()
        raise
    finally:
        task.cancel()
