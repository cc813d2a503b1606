"""Taking traces in: stored in one transaction with the first run that learns from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.chain import EVALUATE, REFLECT, begin, first_run, next_of
from apps.memory_api.jobs.idempotency import Reserved
from apps.memory_api.jobs.queries import latest_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Identity
from apps.memory_api.traces.ingest import is_learnt_from, store_trace
from apps.memory_api.traces.queries import get_trace
from apps.memory_api.traces.schemas import Reflect, TraceAccepted, TraceIn
from apps.memory_api.traces.tables import Trace


@dataclass(frozen=True)
class Intake:
    """Who sends, and what is to become of it."""

    runtime: Runtime
    caller: Identity
    reflect: Reflect
    reserved: Reserved | None = None

    async def one(
        self, session: AsyncSession, body: TraceIn, *, cleaned: bool, number: int = 0
    ) -> TraceAccepted:
        """Store a trace, the n-th of its request, and begin to learn from it. A duplicate answers
        with the run it has.
        """
        self.caller.check_tenant(body.tenant_id)
        project_id = self.caller.project(body.project_id)
        stored = await store_trace(session, body, project_id, self.trace_id(number))
        if stored.duplicate:
            return await self.known(session, stored.trace, cleaned=cleaned)
        return await self.ended(session, stored.trace, cleaned=cleaned)

    async def known(self, session: AsyncSession, trace: Trace, *, cleaned: bool) -> TraceAccepted:
        """The answer to what was sent before: the trace and the run it has, or now gets because
        nobody had asked for one yet.
        """
        if self.reflect != "never":  # one run, however many send it at once
            await get_trace(session, trace.id, for_update=True)
        run = await latest_run(session, trace.id, EVALUATE, REFLECT)
        if run is None or self._wants_more(run):
            run = await self.learn_from(session, trace) or run
        return known_trace(trace.id, run, cleaned=cleaned)

    def trace_id(self, number: int) -> UUID | None:
        """The id that the n-th trace of this request has to have, whoever stores it."""
        return None if self.reserved is None else self.reserved.trace_id(number)

    def settled_by(self, run: Run | None) -> bool:
        """Whether what was sent before needs no more than the run it has."""
        return self.reflect == "never" if run is None else not self._wants_more(run)

    async def ended(self, session: AsyncSession, trace: Trace, *, cleaned: bool) -> TraceAccepted:
        """The answer to news of a trace: with the reflection on it, if there is to be one."""
        await session.flush()
        run = await self.learn_from(session, trace)
        run_id = run.id if run else None
        return TraceAccepted(trace_id=trace.id, run_id=run_id, cleaned=cleaned)

    def _wants_more(self, run: Run) -> bool:
        """Whether a reflection is asked for where the evaluation saw no need of one."""
        ended_there = run.kind == EVALUATE and run.state == "done" and next_of(run) is None
        return self.reflect == "always" and ended_there

    def learns_from(self, state: str, outcome: str | None) -> bool:
        """Whether a trace with this state and outcome is to be learnt from."""
        enabled = self.runtime.settings.reflective_memory_enabled
        return enabled and is_learnt_from(state, outcome, self.reflect)

    async def learn_from(self, session: AsyncSession, trace: Trace) -> Run | None:
        """The first step of learning from a trace, queued, if it is to be learnt from. Raises
        `QueueFull`.
        """
        if not self.learns_from(trace.state, trace.outcome):
            return None
        runs = await self.learn_from_many(session, {trace.id: trace.project_id})
        return runs[trace.id]

    async def learn_from_many(
        self, session: AsyncSession, traces: Mapping[UUID, str]
    ) -> dict[UUID, Run]:
        """The same for several that are to be learnt from, given with their projects: the run of
        each, by its trace.
        """
        if not traces:
            return {}
        await self.runtime.queue.admit(session, len(traces))
        runs = {
            trace_id: first_run(
                session,
                project_id=project_id,
                trace_id=trace_id,
                reflect=self.reflect,
                max_attempts=self.runtime.settings.max_attempts,
            )
            for trace_id, project_id in traces.items()
        }
        await begin(self.runtime.queue, session, *runs.values())
        return runs


def known_trace(trace_id: UUID, run: Run | None, *, cleaned: bool) -> TraceAccepted:
    """The answer to what was sent before. A chain is known by its first run."""
    run_id = (run.parent_id or run.id) if run else None
    return TraceAccepted(trace_id=trace_id, run_id=run_id, duplicate=True, cleaned=cleaned)
