"""The run `reflect`: load a trace, think about it, save what was learnt. No transaction is open
while it thinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.core.prompts import Prompt
from apps.memory_api.core.prompts import load as load_prompt
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import REFLECT, follow
from apps.memory_api.jobs.queries import get_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.errors import LLMPaused
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import put
from apps.memory_api.memory.queries import find_key, link
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.reflection.improve import earlier_of, improve, to_improve
from apps.memory_api.reflection.material import Material, load
from apps.memory_api.reflection.prompt import BUILTIN
from apps.memory_api.reflection.schemas import GenerateAnswer, ReflectionResult
from apps.memory_api.reflection.store import Kept, drafts, keep
from apps.memory_api.reflection.think import Mind, Thought, think
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.episodes import episode_text
from apps.memory_api.traces.schemas import OutcomeType

log = structlog.get_logger()

LESSONS = "lessons"
"""In the input of the step that curates: the memories whose advice is new to the playbook."""
ANSWERED = set(ReflectionResult.model_fields) & set(GenerateAnswer.model_fields)
"""What an answer takes over from the result as it is."""


async def reflect(
    runtime: Runtime, tenant_id: UUID, run_id: UUID, owner: str, *, or_rules: bool = False
) -> GenerateAnswer:
    """Do a run that `owner` holds, and finish it with its answer. With `or_rules`, rules stand in
    for a model that fails, and one later run is queued to improve what they wrote.

    Raises `LeaseLost` when the run was taken over, and the model's `LLMError`.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        run = await get_run(session, run_id)
        if run is None or run.trace_id is None:
            raise NotFound
        material = await load(session, run.trace_id)
    thought = await _think(runtime, material, run_id, or_rules=or_rules)
    embedder = await runtime.embedder_of(tenant_id)
    learnt = await prepare(embedder, _drafts(material, thought, run_id))
    episode = await prepare(embedder, [_episode(material)])
    async with runtime.sessions.tenant(tenant_id) as session:
        kept = await _keep(session, run, thought, learnt)
        await _keep_episode(session, material, episode, kept)
        step = await _go_on(runtime, session, run, material, thought, kept)
        answer = _answer(material, thought, kept, run_id, step)
        await runs.finish(
            session,
            run_id,
            owner,
            answer.model_dump(mode="json"),
            engine=thought.engine,
            degraded_by=thought.failure,
            prompt_hash=thought.prompt_hash,
            usage=thought.usage,
        )
    _log_stored(material, answer)
    return answer


async def _think(runtime: Runtime, material: Material, run_id: UUID, *, or_rules: bool) -> Thought:
    context = material.context
    about = {"tenant_id": context.tenant_id, "project_id": context.project_id}
    log.info(
        "reflection_generation_started",
        **about,
        outcome=context.outcome.value,
        event_count=len(context.events),
    )
    try:
        mind = mind_of(runtime, material, run_id, or_rules=or_rules)
        thought = await think(context, material.evidence, mind)
    except LLMPaused:
        raise  # a thousand waiting runs are not a thousand failures
    except Exception as error:
        log.error("reflection_generation_failed", **about, error=str(error), exc_info=True)
        raise
    if thought.result is not None:
        log.info(
            "reflection_generated",
            **about,
            importance=thought.result.importance,
            confidence=thought.result.confidence,
            has_strategy=thought.result.strategy_text is not None,
        )
    return thought


def mind_of(
    runtime: Runtime, material: Material, run_id: UUID, *, or_rules: bool = False
) -> Mind | None:
    """The model with the prompts that apply to this trace's playbook; None when rules think."""
    if runtime.llm is None:
        return None
    settings, trace = runtime.settings, material.trace

    def prompt(name: str) -> Prompt:
        return load_prompt(
            name,
            tenant=str(trace.tenant_id),
            playbook=trace.playbook,
            operator=settings.prompts_dir,
            builtin=BUILTIN,
        )

    return Mind(
        runtime.llm,
        prompt,
        timeout=settings.llm_timeout,
        max_tokens=settings.llm_max_tokens,
        prompt_tokens=settings.llm_prompt_tokens,
        or_rules=or_rules,
        tenant_id=trace.tenant_id,
        run_id=run_id,
    )


async def _keep(
    session: AsyncSession, run: Run, thought: Thought, learnt: Sequence[Prepared]
) -> list[Kept]:
    earlier = earlier_of(run)
    if earlier is None:
        return await keep(session, learnt)
    if thought.engine == "rules":  # the model was switched off meanwhile: nothing to improve with
        return []
    return await improve(session, earlier, learnt)


async def _go_on(
    runtime: Runtime,
    session: AsyncSession,
    run: Run,
    material: Material,
    thought: Thought,
    kept: Sequence[Kept],
) -> Run | None:
    """The next step, queued: a model writes again what rules wrote in its place, or the lessons go
    to the curator of the trace's playbook. None when there is nothing to do.
    """
    earlier = to_improve(run.id, kept) if thought.degraded else None
    if earlier is not None:
        return await follow(runtime.queue, session, run, REFLECT, earlier.as_input())
    if material.trace.playbook is None:
        return None
    return None


def _log_stored(material: Material, answer: GenerateAnswer) -> None:
    if answer.reflection_id is not None:
        log.info(
            "reflection_stored",
            tenant_id=material.context.tenant_id,
            project_id=material.context.project_id,
            reflection_id=str(answer.reflection_id),
            importance=answer.importance,
        )


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
    material: Material, thought: Thought, kept: Sequence[Kept], run_id: UUID, step: Run | None
) -> GenerateAnswer:
    result = thought.result if kept else None
    answer = GenerateAnswer(
        trace_id=material.trace.id,
        run_id=run_id,
        engine=thought.engine,
        degraded=thought.degraded,
        result="nothing_found",
        next_run_id=step.id if step else None,
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
