"""What Hansei is for, on one page: how a trace becomes advice.

    trace ──▶ evaluate ──▶ reflect ──▶ curate ──▶ merge ──▶ playbook ──▶ the next prompt
              how did it   what to     what to    under the
              really go?   learn?      change?    lock, now

Each step is a run of its own. It loads, thinks with no transaction open, and saves what it found
together with its finished state and the ticket of the next step; so it counts once, and one that
failed is tried again alone. A step with nothing to do is not queued.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import EVALUATE, NEXT, REFLECT, follow
from apps.memory_api.jobs.queries import get_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.reflection.run import reflect
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.tables import Trace


@dataclass(frozen=True)
class Step:
    """A run that is held, and the trace it is about."""

    run: Run
    trace: Trace


async def evaluate(runtime: Runtime, tenant_id: UUID, run_id: UUID, owner: str) -> None:
    """How did the run go, by the evidence, and is there something to learn from it?"""
    async with runtime.sessions.tenant(tenant_id) as session:
        step = await load(session, run_id)
        reflecting = await follow(runtime.queue, session, step.run, REFLECT, {})
        await runs.finish(session, run_id, owner, {NEXT: str(reflecting.id)})


async def load(session: AsyncSession, run_id: UUID) -> Step:
    """Raises `NotFound` when the trace was erased meanwhile."""
    run = await get_run(session, run_id)
    trace = await get_trace(session, run.trace_id) if run and run.trace_id else None
    if run is None or trace is None:
        raise NotFound
    return Step(run, trace)


STEPS = {EVALUATE: evaluate, REFLECT: reflect}
