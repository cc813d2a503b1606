"""Work in steps: a chain of runs. The next step is queued in the transaction that finishes the one
before, so no step is lost or done twice, and each can be tried again alone.

The steps of learning are named here, below those who do them (`workers/learn.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.port import JobQueue, Ticket
from apps.memory_api.jobs.runs import new_run
from apps.memory_api.jobs.tables import Run

EVALUATE, REFLECT, CURATE, MERGE = "evaluate", "reflect", "curate", "merge"

ASKED = "reflect"
"""In the input of the first step: what its trace was sent with, auto or always."""
NEXT = "next_run_id"
"""In the result of a step: the run of the step that follows it. The last step has none."""


def first_run(
    session: AsyncSession, *, project_id: str, trace_id: UUID, reflect: str, max_attempts: int
) -> Run:
    """The run that begins to learn from a trace, added to the session. `reflect` is what was asked
    for: auto or always.
    """
    return new_run(
        session,
        EVALUATE,
        project_id=project_id,
        trace_id=trace_id,
        input={ASKED: reflect},
        max_attempts=max_attempts,
    )


def next_of(run: Run) -> UUID | None:
    """The id of the run that follows one that is done, if any does."""
    result: dict[str, Any] = run.result or {}
    told: str | None = result.get(NEXT)
    return None if told is None else UUID(told)


async def begin(queue: JobQueue, session: AsyncSession, *runs: Run) -> None:
    """Queue the first run of a chain, or of several."""
    await session.flush()
    await queue.enqueue(session, [Ticket(run.tenant_id, run.id) for run in runs])


async def follow(
    queue: JobQueue, session: AsyncSession, run: Run, kind: str, input: Mapping[str, Any]
) -> Run:
    """The step after `run`, queued; call it in the transaction that finishes `run`. All steps of a
    chain have its first run as their parent, and wait in its place: a chain that began earlier
    is finished earlier, instead of all first steps being done before any second one.
    """
    step = new_run(
        session,
        kind,
        project_id=run.project_id,
        trace_id=run.trace_id,
        parent_id=run.parent_id or run.id,
        input=dict(input),
        max_attempts=run.max_attempts,
    )
    await session.flush()
    await queue.enqueue(session, [Ticket(run.tenant_id, step.id, chain=step.parent_id)])
    return step
