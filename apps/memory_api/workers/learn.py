"""What Hansei is for, on one page: how a trace becomes advice.

    trace ──▶ evaluate ──▶ reflect ──▶ curate ──▶ merge ──▶ playbook ──▶ the next prompt
              how did it   what does   what is    under the              whose outcome
              really go?   it teach?   to change? lock, now              comes back here

Each step is a run of its own. It loads, thinks with no transaction open, and saves what it found
together with its finished state and the ticket of the next step; so it counts once, and one that
failed is tried again alone. A step with nothing to do is not queued.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.curator.lessons import lessons_of
from apps.memory_api.curator.queries import memories_by_id
from apps.memory_api.curator.run import curate as think_of_changes
from apps.memory_api.curator.run import merge as apply_changes
from apps.memory_api.curator.schemas import Curation, Merged
from apps.memory_api.evaluation.decide import decide, real_outcome
from apps.memory_api.evaluation.run import evaluate_trace, store_evaluation
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import ASKED, CURATE, EVALUATE, MERGE, NEXT, REFLECT, follow
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.compose import new_sections
from apps.memory_api.playbook.quarantine import ACTOR
from apps.memory_api.playbook.queries import ensure_playbook, get_playbook
from apps.memory_api.playbook.rows import Author, Place
from apps.memory_api.reflection import run as reflection
from apps.memory_api.reflection.count import Tally
from apps.memory_api.reflection.credit import credit
from apps.memory_api.reflection.onward import MEMORIES, PLAYBOOK, hints_in
from apps.memory_api.reflection.resent import find_first
from apps.memory_api.reflection.subject import IMPORTANCE, OUTCOME
from apps.memory_api.reflection.verdicts import settle_verdicts
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.queries import get_trace, has_failed_attempt, list_events
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.tables import Trace

SAME = "same_as"
"""In the result of the first step: the trace that this one is once more."""
CURATION = "curation"
"""In the input of the step that merges: what the step before it thought out."""


async def evaluate(runtime: Runtime, run: Run) -> None:
    """How did the run go, by the evidence, and is there something to learn from it? Bullets that it
    used get the credit also when there is not.
    """
    async with runtime.sessions.tenant(run.tenant_id) as session:
        trace = await _trace_of(session, run)
        if await find_first(session, trace):
            await runs.finish(session, run, _sent_before(trace), engine="rules")
            return
        failed_before = await has_failed_attempt(session, trace)
        await _ensure_playbook(runtime, session, trace)
        events = await list_events(session, trace.id)
    evaluation = await evaluate_trace(runtime, trace, events, run.id)
    told = OutcomeType(trace.outcome) if trace.outcome else None
    decision = decide(
        evaluation,
        told,
        asked=run.input.get(ASKED, "auto"),
        mode=runtime.settings.reflective_memory_mode,
        earlier_failed=failed_before,
    )
    counts = None if decision.reflect else await credit(runtime, run)
    async with runtime.sessions.tenant(run.tenant_id) as session:
        await store_evaluation(session, trace.id, run.id, evaluation)
        tally = await counts(session) if counts is not None else Tally()
        found: dict[str, Any] = {
            "verdict": evaluation.verdict,
            "proven": evaluation.proven,
            "reflect": decision.reflect,
            "importance": decision.importance,
            "reason": decision.reason,
        }
        if decision.reflect:
            known = {IMPORTANCE: decision.importance, OUTCOME: real_outcome(evaluation, told)}
            found[NEXT] = await _next(runtime, session, run, REFLECT, known)
        await runs.finish(
            session,
            run,
            found,
            engine="llm" if evaluation.prompt_hash else "rules",
            degraded_by=evaluation.failure,
            prompt_hash=evaluation.prompt_hash,
            usage=evaluation.usage,
        )
    await settle_verdicts(runtime, run.tenant_id, run.id, tally)


async def reflect(runtime: Runtime, run: Run) -> None:
    """What does the run teach, and which of the bullets that it used helped or harmed?"""
    await reflection.reflect(runtime, run)


async def curate(runtime: Runtime, run: Run) -> None:
    """What should the playbook say from now on? At most one model call; nothing is changed yet."""
    async with runtime.sessions.tenant(run.tenant_id) as session:
        ids = [UUID(memory) for memory in run.input.get(MEMORIES, [])]
        rows = await memories_by_id(session, ids)
    lessons = lessons_of([rows[one] for one in ids if one in rows], hints_in(run.input))
    place = _place_of(run)
    curation = await think_of_changes(runtime, run.tenant_id, place, lessons, run_id=run.id)
    async with runtime.sessions.tenant(run.tenant_id) as session:
        told = {PLAYBOOK: place.name, CURATION: curation.model_dump(mode="json")}
        found = {
            "deltas": [delta.model_dump(mode="json") for delta in curation.deltas],
            "kept": [kept.key for kept in curation.kept],
            "left_out": [left.reason for left in curation.dropped],
            NEXT: await _next(runtime, session, run, MERGE, told),
        }
        await runs.finish(
            session,
            run,
            found,
            engine=curation.engine,
            degraded_by=curation.failure,
            prompt_hash=curation.prompt_hash,
            usage=curation.usage,
        )


async def merge(runtime: Runtime, run: Run) -> None:
    """The changes become rows: plain code under the playbook's lock, against what it says today."""
    place = _place_of(run)
    curation = Curation.model_validate(run.input[CURATION])
    author = Author(ACTOR, f"learnt from trace {run.trace_id}", run.id)

    async def finish(session: AsyncSession, merged: Merged) -> None:
        done = {PLAYBOOK: place.name, **merged.summary(), "changes": merged.changes()}
        await runs.finish(session, run, done)

    await apply_changes(runtime, run.tenant_id, place, curation, author, settle=finish)


STEPS = {EVALUATE: evaluate, REFLECT: reflect, CURATE: curate, MERGE: merge}


async def _trace_of(session: AsyncSession, run: Run) -> Trace:
    """Raises `NotFound` when it was erased meanwhile."""
    trace = await get_trace(session, run.trace_id) if run.trace_id else None
    if trace is None:
        raise NotFound
    return trace


def _place_of(run: Run) -> Place:
    return Place(run.project_id, run.input[PLAYBOOK])


def _sent_before(trace: Trace) -> dict[str, Any]:
    return {"reflect": False, "reason": "it was sent before", SAME: str(trace.same_as)}


async def _next(
    runtime: Runtime, session: AsyncSession, run: Run, kind: str, input: dict[str, Any]
) -> str:
    return str((await follow(runtime.queue, session, run, kind, input)).id)


async def _ensure_playbook(runtime: Runtime, session: AsyncSession, trace: Trace) -> None:
    """A trace makes the playbook that it names."""
    if trace.playbook is None:
        return
    place = Place(trace.project_id, trace.playbook)
    if await get_playbook(session, place) is None:
        await ensure_playbook(session, place, new_sections(runtime.settings, place.name))
