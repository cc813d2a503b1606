"""Accepts traces: stores them, and starts the run that learns from them, in one transaction.

`TraceIntake` queues the learning chain of a trace. `start_run_for_trace` starts a run that a client
may wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.idempotency import IdempotencyReservation
from memory_api.auth.identity import Identity
from memory_api.core.log_context import bind_log_context
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import (
    EVALUATE,
    REFLECT,
    enqueue_learning_runs,
    next_run_id,
)
from memory_api.runs.queries import latest_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.duplicates import mark_if_duplicate
from memory_api.traces.queries import get_trace
from memory_api.traces.schemas import CreateTraceRequest, ReflectMode, TraceReceipt
from memory_api.traces.storage import (
    NewTrace,
    StoredTrace,
    is_ready_for_learning,
    prepare_trace,
    store_trace,
)
from memory_api.traces.tables import TraceRow


@dataclass(frozen=True)
class RunOptions:
    kind: str
    input: Mapping[str, Any] = field(default_factory=dict[str, Any])
    wait: bool = True
    """Execute it in this process while the client waits, instead of in a worker."""
    trace_id: UUID | None = None
    """The ID that the trace must get, derived from the Idempotency-Key. An earlier try of the same
    request, whose process died, stored the trace under this ID.
    """
    is_answered_by: Callable[[RunRow], bool] = lambda run: True
    """Whether an earlier run of the same trace answers this request."""


@dataclass(frozen=True)
class StartedRun:
    """A stored trace and its run. If `is_duplicate`, the run belongs to an earlier request;
    otherwise this process holds it, or it is queued.
    """

    trace_id: UUID
    run: RunRow
    is_duplicate: bool = False


async def start_run_for_trace(
    runtime: Runtime, caller: Identity, trace: CreateTraceRequest, options: RunOptions
) -> StartedRun:
    """Store a trace and start a run for it: held by this process, or queued for a worker.

    A duplicate gets the run it has, unless that run failed or does not answer this request. Raises
    `QueueFull`, and `Conflict` if the external_id belongs to another trace.
    """
    project_id = caller.resolve_project(trace.project_id)
    new = await prepare_trace(trace, caller.tenant_id, project_id, options.trace_id)
    async with runtime.sessions.for_tenant(caller.tenant_id) as session:
        stored = await store_trace(session, new)
        bind_log_context(trace_id=stored.trace.id)
        earlier = await _find_earlier_run(session, stored, options)
        if earlier is not None:
            return StartedRun(stored.trace.id, earlier, is_duplicate=True)
        await runtime.queue.admit(session)
        run = lifecycle.new_run(
            session,
            options.kind,
            project_id=project_id,
            trace_id=stored.trace.id,
            input=dict(options.input),
            max_attempts=runtime.settings.max_attempts,
        )
        if options.wait:
            lifecycle.start_in_foreground(run, runtime.new_lease_holder(), runtime.lease_duration)
        await session.flush()
        if options.wait:
            await session.refresh(run, ("lease_until", "started_at"))  # set by the database
        # If this process dies, a worker gets the ticket after the lease has expired.
        delay = runtime.lease_duration if options.wait else None
        await runtime.queue.enqueue(session, [Ticket(caller.tenant_id, run.id)], after=delay)
        return StartedRun(stored.trace.id, run)


async def _find_earlier_run(
    session: AsyncSession, stored: StoredTrace, options: RunOptions
) -> RunRow | None:
    """The run that answers this request: of the same trace, or of the trace that this one repeats
    without an external_id. An open trace repeats none: its events are not complete.
    """
    if stored.duplicate:
        failed = ("failed", "dead")
        run = await latest_run(session, stored.trace.id, options.kind, without_states=failed)
    elif stored.trace.state == "closed":
        run = await mark_if_duplicate(session, stored.trace)
        if run is not None and (run.kind, run.state) != (options.kind, "done"):
            run = None
    else:
        return None
    return run if run is not None and options.is_answered_by(run) else None


@dataclass(frozen=True)
class TraceIntake:
    """Accepts the traces of one request and queues their learning chains. `reserved` is the
    Idempotency-Key of the request.
    """

    runtime: Runtime
    caller: Identity
    reflect: ReflectMode
    reserved: IdempotencyReservation | None = None

    async def accept(
        self, session: AsyncSession, new: NewTrace, *, sanitized: bool
    ) -> TraceReceipt:
        """Store a trace and queue its learning chain. A duplicate is answered with the run it
        has.
        """
        stored = await store_trace(session, new)
        if stored.duplicate:
            return await self.accept_duplicate(session, stored.trace, sanitized=sanitized)
        return await self.accept_stored(session, stored.trace, sanitized=sanitized)

    async def accept_duplicate(
        self, session: AsyncSession, trace: TraceRow, *, sanitized: bool
    ) -> TraceReceipt:
        """Answer with the run of the trace. If it has none yet, or this request wants more, queue
        one.
        """
        if self.reflect != "never":
            # Simultaneous duplicates must not queue two runs.
            await get_trace(session, trace.id, for_update=True)
        run = await latest_run(session, trace.id, EVALUATE, REFLECT)
        receipt = duplicate_receipt(trace.id, run, sanitized=sanitized)
        if run is None or self._wants_more_than(run):
            run_id = await self.enqueue_learning(session, trace)
            receipt.run_id = run_id or receipt.run_id
        return receipt

    async def accept_stored(
        self, session: AsyncSession, trace: TraceRow, *, sanitized: bool
    ) -> TraceReceipt:
        """Queue the learning chain of a trace that is new or has changed."""
        await session.flush()
        run_id = await self.enqueue_learning(session, trace)
        return TraceReceipt(trace_id=trace.id, run_id=run_id, sanitized=sanitized)

    def reserved_trace_id(self, number: int) -> UUID | None:
        """The ID that the trace at this position of the request must get; None if any will do."""
        return None if self.reserved is None else self.reserved.trace_id(number)

    def is_answered_by(self, run: RunRow | None) -> bool:
        """Whether a duplicate with this run needs no other run."""
        return self.reflect == "never" if run is None else not self._wants_more_than(run)

    def _wants_more_than(self, run: RunRow) -> bool:
        """Whether a reflection is wanted that the evaluation found unnecessary."""
        has_no_reflection = run.kind == EVALUATE and run.state == "done" and not next_run_id(run)
        return self.reflect == "always" and has_no_reflection

    def should_learn(
        self, state: str, outcome: str | None, ground_truth: object, test_report: str | None
    ) -> bool:
        """Whether a trace with this state, outcome and evidence gets a learning chain."""
        enabled = self.runtime.settings.reflective_memory_enabled
        return enabled and is_ready_for_learning(
            state, outcome, ground_truth, test_report, self.reflect
        )

    async def enqueue_learning(self, session: AsyncSession, trace: TraceRow) -> UUID | None:
        """Queue the first run of the learning chain, if the trace gets one, and return its ID.
        Raises `QueueFull`.
        """
        if not self.should_learn(trace.state, trace.outcome, trace.ground_truth, trace.test_report):
            return None
        return (await self.enqueue_learning_many(session, {trace.id: trace.project_id}))[trace.id]

    async def enqueue_learning_many(
        self, session: AsyncSession, projects: Mapping[UUID, str], after: timedelta | None = None
    ) -> dict[UUID, UUID]:
        """Queue the first runs of the learning chains of these traces, due `after` this time.
        `projects` maps trace IDs to project IDs. Returns trace ID → run ID. Raises `QueueFull`.
        """
        if not projects:
            return {}
        queue = self.runtime.queue
        await queue.admit(session, len(projects))
        attempts = self.runtime.settings.max_attempts
        return await enqueue_learning_runs(
            queue, session, projects, reflect=self.reflect, max_attempts=attempts, after=after
        )


def duplicate_receipt(trace_id: UUID, run: RunRow | None, *, sanitized: bool) -> TraceReceipt:
    """The answer to a duplicate. The run that stands for a chain is its first one."""
    run_id = (run.parent_id or run.id) if run else None
    return TraceReceipt(trace_id=trace_id, run_id=run_id, duplicate=True, sanitized=sanitized)
