"""Reflecting while the caller waits: the trace and the run are stored first, so a process that dies
loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import REFLECT
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.queries import get_run, latest_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.reflection.attend import attend
from apps.memory_api.reflection.improve import earlier_of
from apps.memory_api.reflection.resent import find_first
from apps.memory_api.reflection.run import reflect
from apps.memory_api.reflection.schemas import GenerateAnswer, GenerateIn
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Identity
from apps.memory_api.traces.ingest import Stored, store_trace
from apps.memory_api.traces.schemas import TraceIn


@dataclass(frozen=True)
class Accepted:
    """A stored trace and the run that reflects on it; `answer` once the run is done."""

    trace_id: UUID
    run_id: UUID
    state: str
    answer: GenerateAnswer | None = None


async def reflect_now(
    runtime: Runtime,
    caller: Identity,
    body: GenerateIn,
    *,
    wait: bool,
    trace_id: UUID | None = None,
) -> Accepted:
    """Store, then reflect (`wait`) or leave it to a worker. A duplicate answers as the first, and
    so does what an earlier try of this request stored (`trace_id`) before its process died.

    When the model fails while the caller waits, rules answer (HANSEI_ON_MODEL_FAILURE=rules), or
    its `LLMError` is raised and the run is failed. Raises `QueueFull` when a worker is to do it.
    """
    async with runtime.sessions.tenant(caller.tenant_id) as session:
        project_id = caller.project(body.project_id)
        trace_body = TraceIn(**body.model_dump(exclude={"project_id", "tenant_id"}))
        stored = await store_trace(session, trace_body, project_id, trace_id)
        known = await _learnt_before(session, stored)
        if known is not None:
            return _known(stored.trace.id, await _readable(session, known))
        if not wait:
            await runtime.queue.admit(session)
        run = runs.new_run(
            session,
            REFLECT,
            project_id=project_id,
            trace_id=stored.trace.id,
            max_attempts=runtime.settings.max_attempts,
        )
        if wait:
            runs.hold(run, runtime.new_holder(), runtime.lease)
        await session.flush()
        # Should this process die, a worker finds the ticket when the lease has run out.
        after = runtime.lease if wait else None
        await runtime.queue.enqueue(session, [Ticket(caller.tenant_id, run.id)], after=after)
    if not wait:
        return Accepted(stored.trace.id, run.id, run.state)
    work = partial(reflect, or_rules=_or_rules(runtime))
    answer = await attend(runtime, run, work)
    return Accepted(stored.trace.id, run.id, "done", answer)


def _or_rules(runtime: Runtime) -> bool:
    return runtime.settings.on_model_failure == "rules"


async def _learnt_before(session: AsyncSession, stored: Stored) -> Run | None:
    """The run of a trace that is here, or of one that this is once more without its name."""
    if stored.duplicate:
        return await latest_run(session, stored.trace.id, REFLECT)
    first = await find_first(session, stored.trace)
    return first if first and first.kind == REFLECT and first.state == "done" else None


async def _readable(session: AsyncSession, run: Run) -> Run:
    """The run whose answer stands: the one that is being improved, until it has been."""
    if run.state == "done" or earlier_of(run) is None or run.parent_id is None:
        return run
    return await get_run(session, run.parent_id) or run


def _known(trace_id: UUID, run: Run) -> Accepted:
    if run.state != "done":
        return Accepted(trace_id, run.id, run.state)
    answer = GenerateAnswer.model_validate(run.result).model_copy(update={"duplicate": True})
    return Accepted(trace_id, run.id, run.state, answer)
