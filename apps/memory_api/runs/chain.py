"""Chains of runs. The next step is inserted in the transaction that finishes the run before it, so
no step is lost or executed twice, and each step can be retried alone.

A worker goes on with the next step at once. Its ticket is valid for the rest of the chain: if
the worker dies, the ticket is delivered again and leads to the step that is not done. Otherwise the
next step gets a ticket of its own.

The learning steps have their kinds and the keys of their inputs here, below the folders that
execute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.run_queue.port import RunQueue, Ticket, slots_of
from memory_api.runs.lifecycle import (
    ClaimResult,
    NextStep,
    QueuedRun,
    claim_run,
    new_run,
)
from memory_api.runs.queries import get_run, insert_queued_runs
from memory_api.runs.tables import RunRow

EVALUATE, REFLECT, CURATE, APPLY = "evaluate", "reflect", "curate", "apply"

REFLECT_MODE = "reflect"
"""Input of EVALUATE: the `reflect` mode that the trace was sent with, auto or always."""
IMPORTANCE, OUTCOME = "importance", "outcome"
"""Input of REFLECT from EVALUATE: the importance of the trace, 0 to 1, and its effective outcome,
which may differ from the reported one.
"""
PLAYBOOK = "playbook"
"""Input of CURATE and APPLY: the name of the playbook. The lessons are in its inbox. Of REFLECT:
the playbook of a short run, whose reflection may share a model call.
"""
CURATION_PLAN, LESSON_IDS, CURATION_RUN_ID = "curation", "lesson_ids", "curation_run_id"
"""Input of APPLY: a `CurationPlan`, the inbox IDs of its lessons in their order, and the CURATE run
that made it.
"""
NEXT_RUN_ID = "next_run_id"
"""In the result of a run: the ID of the next step. The last step has none."""


async def enqueue_learning_runs(
    queue: RunQueue,
    session: AsyncSession,
    projects: Mapping[UUID, str],
    *,
    reflect: str,
    max_attempts: int,
    after: timedelta | None = None,
) -> dict[UUID, UUID]:
    """Queue the first runs of the learning chains of traces, due `after` this time. `projects` maps
    trace IDs to project IDs; `reflect` is auto or always. Returns trace ID → run ID.
    """
    run_ids = await insert_queued_runs(
        session, EVALUATE, projects, input={REFLECT_MODE: reflect}, max_attempts=max_attempts
    )
    tenant_id = current_tenant_id(session)
    tickets = [Ticket(tenant_id, run_id) for run_id in run_ids.values()]
    await queue.enqueue(session, tickets, after=after)
    return run_ids


def next_run_id(run: RunRow) -> UUID | None:
    """The ID of the next step of a run that is done, if there is one."""
    result: dict[str, Any] = run.result or {}
    run_id: str | None = result.get(NEXT_RUN_ID)
    return None if run_id is None else UUID(run_id)


async def claim_unfinished_step(
    session: AsyncSession, run_id: UUID, owner: str, lease: timedelta
) -> ClaimResult:
    """Claim a run or, if it is done, the first step after it that is not. The worker that held its
    ticket may have died while it executed that step.
    """
    while True:
        claim = await claim_run(session, run_id, owner, lease)
        if claim.run is not None or claim.wait is not None:
            return claim
        run = await get_run(session, run_id)
        following = next_run_id(run) if run is not None and run.state == "done" else None
        if following is None:
            return claim
        run_id = following


async def enqueue_runs(
    queue: RunQueue, session: AsyncSession, *runs: RunRow, after: timedelta | None = None
) -> None:
    """Queue runs that no other run precedes, due `after` this time."""
    await session.flush()
    tickets = [Ticket(run.tenant_id, run.id, slots=slots_of(run.kind)) for run in runs]
    await queue.enqueue(session, tickets, after=after)


def new_next_step(session: AsyncSession, run: RunRow, step: NextStep) -> RunRow:
    """The step after `run`, in the transaction that finishes `run`. The parent of every later step
    is the first run of the chain.
    """
    return new_run(
        session,
        step.kind,
        project_id=run.project_id,
        trace_id=run.trace_id,
        parent_id=run.parent_id or run.id,
        input=dict(step.input),
        max_attempts=run.max_attempts,
        run_id=step.run_id,
    )


async def enqueue_next_step(
    queue: RunQueue, session: AsyncSession, run: RunRow, step: NextStep
) -> RunRow:
    """Queue the step after `run`. It has the queue position of the first run of the chain: a chain
    that began earlier ends earlier.
    """
    next_run = new_next_step(session, run, step)
    await session.flush()
    ticket = Ticket(run.tenant_id, next_run.id, chain_id=next_run.parent_id)
    await queue.enqueue(session, [ticket], after=step.delay)
    return next_run


async def enqueue_shared_run(queue: RunQueue, session: AsyncSession, queued: QueuedRun) -> None:
    """Add the ticket of a run that several chains share."""
    await session.flush()
    ticket = Ticket(current_tenant_id(session), queued.run_id, chain_id=queued.chain_id)
    await queue.enqueue(session, [ticket], after=queued.delay)
