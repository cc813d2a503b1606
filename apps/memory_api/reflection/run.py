"""The run `reflect`: load a trace, think about it, save what was learnt. No transaction is open
while it thinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.queries import get_run
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import put
from apps.memory_api.memory.queries import find_key, link
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.reflection.findings.schemas import Attempt
from apps.memory_api.reflection.schemas import GenerateAnswer, ReflectionContext, ReflectionResult
from apps.memory_api.reflection.store import Kept, drafts, keep
from apps.memory_api.reflection.think import Evidence, Thought, think
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.episodes import episode_text
from apps.memory_api.traces.queries import earlier_attempts, get_trace, list_events
from apps.memory_api.traces.schemas import ErrorInfo, Event, EventType, OutcomeType
from apps.memory_api.traces.tables import Trace, TraceEvent

log = structlog.get_logger()

ANSWERED = set(ReflectionResult.model_fields) & set(GenerateAnswer.model_fields)
"""What an answer takes over from the result as it is."""


@dataclass(frozen=True)
class Material:
    """All that a reflection on one trace needs."""

    trace: Trace
    context: ReflectionContext
    evidence: Evidence


async def reflect(runtime: Runtime, tenant_id: UUID, run_id: UUID, owner: str) -> GenerateAnswer:
    """Do a run that `owner` holds, and finish it with its answer. Raises `LeaseLost` when it was
    taken over.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        run = await get_run(session, run_id)
        if run is None or run.trace_id is None:
            raise NotFound
        material = await load(session, run.trace_id)
    context = material.context
    about = {"tenant_id": str(tenant_id), "project_id": context.project_id}
    log.info(
        "reflection_generation_started",
        **about,
        outcome=context.outcome.value,
        event_count=len(context.events),
    )
    try:
        thought = await think(context, material.evidence)
    except Exception as error:
        log.error("reflection_generation_failed", **about, error=str(error), exc_info=True)
        raise
    result = thought.result
    if result is not None:
        log.info(
            "reflection_generated",
            **about,
            importance=result.importance,
            confidence=result.confidence,
            has_strategy=result.strategy_text is not None,
        )
    learnt = await prepare(runtime.embedder, _drafts(material, thought, run_id))
    episode = await prepare(runtime.embedder, [_episode(material)])
    async with runtime.sessions.tenant(tenant_id) as session:
        kept = await keep(session, learnt)
        await _keep_episode(session, material, episode, kept)
        answer = _answer(material, thought, kept, run_id)
        await runs.finish(
            session,
            run_id,
            owner,
            answer.model_dump(mode="json"),
            engine=thought.engine,
            degraded=thought.degraded,
        )
    if result is not None:
        log.info(
            "reflection_stored",
            **about,
            reflection_id=str(answer.reflection_id),
            importance=result.importance,
        )
    return answer


async def load(session: AsyncSession, trace_id: UUID) -> Material:
    """A trace with its events, and the earlier attempts of its task with theirs."""
    trace = await get_trace(session, trace_id)
    if trace is None:
        raise NotFound
    events = await list_events(session, trace_id)
    attempts = [
        Attempt(
            outcome=OutcomeType(earlier.outcome or OutcomeType.PARTIAL),
            events=as_events(await list_events(session, earlier.id)),
            trace_id=str(earlier.id),
            ground_truth_known=earlier.ground_truth is not None,
        )
        for earlier in await earlier_attempts(session, trace)
    ]
    context = ReflectionContext(
        events=as_events(events),
        outcome=OutcomeType(trace.outcome or OutcomeType.PARTIAL),
        tenant_id=str(trace.tenant_id),
        project_id=trace.project_id,
        session_id=trace.session_id,
        error=ErrorInfo.model_validate(trace.error) if trace.error else None,
        task_description=trace.task_description,
        task_goal=trace.task_goal,
        related_memory_ids=[UUID(memory) for memory in trace.related_memory_ids],
    )
    return Material(trace, context, Evidence(attempts, trace.ground_truth, trace.test_report))


def as_events(rows: Sequence[TraceEvent]) -> list[Event]:
    """Rows as wire events; they were validated when they came in."""
    return [
        Event.model_construct(
            event_id=row.event_id,
            event_type=EventType(row.event_type),
            content=row.content,
            timestamp=row.timestamp,
            metadata=row.metadata_,
            tool_name=row.tool_name,
            error=row.error,
            agent=row.agent,
        )
        for row in rows
    ]


def _drafts(material: Material, thought: Thought, run_id: UUID) -> list[Draft]:
    if thought.result is None:
        return []
    return drafts(
        thought.result,
        project_id=material.context.project_id,
        session_id=material.context.session_id,
        context=material.context,
        trace_id=material.trace.id,
        run_id=run_id,
    )


def _episode(material: Material) -> Draft:
    trace, context = material.trace, material.context
    text = episode_text(trace.task_description, trace.task_goal, trace.outcome, context.events)
    return Draft(
        kind=Kind.EPISODE,
        project_id=trace.project_id,
        content=text,
        importance=0.3 if context.outcome is OutcomeType.SUCCESS else 0.6,
        source="trace",
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata={"event_count": len(context.events), "task_key": trace.task_key},
        key=str(trace.id),
    )


async def _keep_episode(
    session: AsyncSession, material: Material, episode: Sequence[Prepared], kept: Sequence[Kept]
) -> None:
    """One episode a trace, however often it is reflected on; the lessons are linked to it."""
    memory = await find_key(session, episode[0].draft.scope_address, str(material.trace.id))
    episode_id = memory.id if memory else (await put(session, episode))[0].id
    if memory is None:
        await link(session, episode_id, "derived_from", "trace", [material.trace.id])
    for lesson in kept:
        await link(session, lesson.memory_id, "derived_from", "memory", [episode_id])
    if kept:
        related = material.context.related_memory_ids
        await link(session, kept[0].memory_id, "related_to", "memory", related)
    if len(kept) > 1:
        await link(session, kept[1].memory_id, "derived_from", "memory", [kept[0].memory_id])


def _answer(
    material: Material, thought: Thought, kept: Sequence[Kept], run_id: UUID
) -> GenerateAnswer:
    result = thought.result
    answer = GenerateAnswer(
        trace_id=material.trace.id,
        run_id=run_id,
        engine=thought.engine,
        degraded=thought.degraded,
        result="nothing_found",
    )
    if result is None:
        return answer
    return answer.model_copy(
        update={
            "reflection_id": kept[0].memory_id,
            "strategy_id": kept[1].memory_id if len(kept) > 1 else None,
            "result": "stored" if kept[0].new else "witnessed",
            **result.model_dump(include=ANSWERED),
        }
    )
