"""Work that somebody waits for: the trace and the run are stored first, with a lease, so that a
process that dies loses nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from apps.memory_api.jobs import runs
from apps.memory_api.jobs.lease import held
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import latest_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.ingest import store_trace
from apps.memory_api.traces.schemas import TraceIn

A = TypeVar("A")
Work = Callable[[Runtime, Run], Awaitable[A]]
"""Does a run that is held, and finishes it."""


@dataclass(frozen=True)
class Begun:
    """A stored trace and its run. `known` when the same was sent before: that run is not ours."""

    trace_id: UUID
    run: Run
    known: bool = False


async def begin(
    runtime: Runtime,
    tenant_id: UUID,
    body: TraceIn,
    project_id: str,
    kind: str,
    input: dict[str, Any],
    *,
    wait: bool,
    settles: Callable[[Run], bool] = lambda _run: True,
) -> Begun:
    """Store the trace and a run of this kind: held by us (`wait`), or left to a worker. What was
    sent before has its run already, unless that one failed or does not settle what is asked now.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        stored = await store_trace(session, body, project_id)
        before = await latest_run(session, stored.trace.id, kind) if stored.duplicate else None
        if before and before.state not in ("failed", "dead") and settles(before):
            return Begun(stored.trace.id, before, known=True)
        await runtime.queue.admit(session)
        run = runs.new_run(
            session,
            kind,
            project_id=project_id,
            trace_id=stored.trace.id,
            input=input,
            max_attempts=runtime.settings.max_attempts,
        )
        if wait:
            runs.hold(run, runtime.new_holder(), runtime.lease)
        await session.flush()
        # Should this process die, a worker finds the ticket when the lease has run out.
        after = runtime.lease if wait else None
        await runtime.queue.enqueue(session, [Ticket(tenant_id, run.id)], after=after)
        return Begun(stored.trace.id, run)


async def attend(runtime: Runtime, run: Run, work: Work[A]) -> A:
    """Do a run that we hold. What fails is recorded with its cause and raised, and a worker tries
    it again; where a model's failure is to be told (HANSEI_ON_MODEL_FAILURE=fail) it ends the run.
    """
    try:
        async with held(runtime.sessions, run, runtime.lease):
            return await work(runtime, run)
    except Exception as error:
        ends = isinstance(error, LLMError) and runtime.settings.on_model_failure == "fail"
        async with runtime.sessions.tenant(run.tenant_id) as session:
            if ends:
                await runs.refuse(session, run, error)
            elif (delay := await runs.fail(session, run, error)) is not None:
                await runtime.queue.enqueue(session, [Ticket(run.tenant_id, run.id)], after=delay)
        raise
