"""The run `reflect`: load a trace, think about it, save what was learnt. No transaction is open
while it thinks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs import runs
from apps.memory_api.jobs.chain import REFLECT, follow
from apps.memory_api.jobs.tables import Run
from apps.memory_api.llm.errors import LLMPaused
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import make_room, put
from apps.memory_api.memory.queries import Link, link
from apps.memory_api.playbook.evaluate import Verdict
from apps.memory_api.reflection.episode import episode_of, find_episode
from apps.memory_api.reflection.general import is_of_one_task
from apps.memory_api.reflection.group import group_drafts
from apps.memory_api.reflection.hints import hints
from apps.memory_api.reflection.improve import earlier_of, improve, to_improve
from apps.memory_api.reflection.known import related_lessons
from apps.memory_api.reflection.material import Material
from apps.memory_api.reflection.mind import Mind, mind_for
from apps.memory_api.reflection.onward import to_curator
from apps.memory_api.reflection.schemas import GenerateAnswer, Judged, ReflectionResult, Taught
from apps.memory_api.reflection.store import Kept, drafts, keep
from apps.memory_api.reflection.subject import IMPORTANCE, Subject, load_subject
from apps.memory_api.reflection.think import Thought, think
from apps.memory_api.reflection.verdicts import (
    Ready,
    by_model,
    by_rules,
    prepare_verdicts,
    save_verdicts,
    settle_verdicts,
)
from apps.memory_api.runtime import Runtime

log = structlog.get_logger()

ANSWERED = set(ReflectionResult.model_fields) & set(GenerateAnswer.model_fields)
"""What an answer takes over from the result as it is."""


async def reflect(runtime: Runtime, run: Run, *, or_rules: bool = False) -> GenerateAnswer:
    """Do a run that is held, and finish it with its answer. With `or_rules`, rules stand in
    for a model that fails, and one later run is queued to improve what they wrote.

    Raises `LeaseLost` when the run was taken over, and the model's `LLMError`.
    """
    tenant_id = run.tenant_id
    async with runtime.sessions.tenant(tenant_id) as session:
        subject = await load_subject(session, run)
    thought = await _think(runtime, tenant_id, subject, or_rules=or_rules)
    verdicts = await prepare_verdicts(
        runtime, tenant_id, subject.place, _verdicts(subject, thought)
    )
    embedder = await runtime.embedder_of(tenant_id)
    own = await prepare(embedder, _drafts(subject, thought))
    shared = await prepare(embedder, _group_drafts(subject, own))
    episode = await prepare(embedder, [_episode(subject)])
    async with runtime.sessions.tenant(tenant_id) as session:
        tally = await save_verdicts(session, subject.trace, verdicts)
        await make_room(session, [*own, *shared, *episode])
        before = await find_episode(session, episode[0].draft)
        beside = [] if before else episode
        kept, others = await _keep(session, subject, thought, own, shared, beside)
        lessons = [*kept[1:], *others]
        episode_id = before.id if before else episode[0].draft.id
        await link(session, _links(subject, kept, lessons, episode_id))
        said = [*own[1 : len(kept)], *shared]
        rules = [k for k, item in zip(lessons, said, strict=True) if _is_for_all(item.draft)]
        step = await _go_on(runtime, session, subject, thought, kept, rules, verdicts)
        answer = _answer(subject, thought, kept, lessons, verdicts, step)
        await runs.finish(
            session,
            run,
            answer.model_dump(mode="json"),
            engine=thought.engine,
            degraded_by=thought.failure,
            prompt_hash=thought.prompt_hash,
            usage=thought.usage,
        )
    await settle_verdicts(runtime, tenant_id, run.id, tally)
    _log_stored(subject, answer)
    return answer


async def _think(runtime: Runtime, tenant_id: UUID, subject: Subject, *, or_rules: bool) -> Thought:
    context = subject.material.context
    about = {"tenant_id": context.tenant_id, "project_id": context.project_id}
    log.info(
        "reflection_generation_started",
        **about,
        outcome=context.outcome.value,
        event_count=len(context.events),
    )
    try:
        mind = mind_of(runtime, subject.material, subject.run.id, or_rules=or_rules)
        related = await related_lessons(runtime, tenant_id, context) if mind else []
        thought = await think(context, subject.evidence(related), mind)
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
    return _without_what_was_told(subject, thought)


def mind_of(
    runtime: Runtime, material: Material, run_id: UUID, *, or_rules: bool = False
) -> Mind | None:
    """The model with the prompts that apply to this trace's playbook; None when rules think."""
    trace = material.trace
    return mind_for(runtime, trace.tenant_id, trace.playbook, run_id, or_rules=or_rules)


def _without_what_was_told(subject: Subject, thought: Thought) -> Thought:
    """Advice that the playbook itself gave to this run is a use of it, and no new lesson."""
    result = thought.result
    if result is None or not result.strategy_text or not subject.is_told(result.strategy_text):
        return thought
    log.info("strategy_came_from_the_playbook", run_id=str(subject.run.id))
    return replace(thought, result=result.model_copy(update={"strategy_text": None}))


def _verdicts(subject: Subject, thought: Thought) -> list[Verdict]:
    found = thought.found
    rules = by_rules(subject.material, subject.used, found, subject.run.id) if found else []
    return [*rules, *by_model(subject.material, subject.used, thought.verdicts, subject.run.id)]


def _drafts(subject: Subject, thought: Thought) -> list[Draft]:
    context = subject.material.context
    if thought.result is None:
        return []
    return drafts(
        thought.result,
        project_id=context.project_id,
        session_id=context.session_id,
        context=context,
        trace_id=subject.trace.id,
        run_id=subject.run.id,
    )


def _group_drafts(subject: Subject, own: Sequence[Prepared]) -> list[Draft]:
    """What the attempts of the task teach together, as far as this run does not say it itself. A
    run that only improves another's words has said it before.
    """
    if earlier_of(subject.run) is not None:
        return []
    said = {item.draft.content for item in own}
    made = group_drafts(subject.material, subject.taught, subject.run.id)
    return [d for d in made if d.content not in said and not subject.is_told(d.content)]


def _is_for_all(draft: Draft) -> bool:
    """Whether a strategy can stand in a playbook. What a model writes was asked to."""
    return "model" in draft.metadata or not is_of_one_task(draft.content)


def _episode(subject: Subject) -> Draft:
    return episode_of(subject.material, subject.run.input.get(IMPORTANCE))


async def _keep(
    session: AsyncSession,
    subject: Subject,
    thought: Thought,
    own: Sequence[Prepared],
    shared: Sequence[Prepared],
    beside: Sequence[Prepared],
) -> tuple[list[Kept], list[Kept]]:
    """The reflection and its strategy, and what the attempts of the task teach together; `beside`
    them the episode, where there is none yet.
    """
    earlier = earlier_of(subject.run)
    if earlier is None:
        kept = await keep(session, [*own, *shared], beside=beside)
        return kept[: len(own)], kept[len(own) :]
    if beside:
        await put(session, beside)
    if thought.engine == "rules":  # the model was switched off meanwhile: nothing to improve with
        return [], []
    return await improve(session, earlier, own), []


def _links(
    subject: Subject, kept: Sequence[Kept], lessons: Sequence[Kept], episode_id: UUID
) -> Iterator[Link]:
    """From the episode to its trace, from all that was learnt to the episode, from the reflection
    to what it is related to, and from the strategy to the reflection.
    """
    yield Link(episode_id, "derived_from", "trace", subject.trace.id)
    for one in (*kept[:1], *lessons):
        yield Link(one.memory_id, "derived_from", "memory", episode_id)
    if kept:
        for other in subject.material.context.related_memory_ids:
            yield Link(kept[0].memory_id, "related_to", "memory", other)
    if len(kept) > 1:
        yield Link(kept[1].memory_id, "derived_from", "memory", kept[0].memory_id)


async def _go_on(
    runtime: Runtime,
    session: AsyncSession,
    subject: Subject,
    thought: Thought,
    kept: Sequence[Kept],
    lessons: Sequence[Kept],
    ready: Ready,
) -> Run | None:
    """The next step, queued: a model writes again what rules wrote in its place, or the lessons go
    to the curator of the trace's playbook. None when there is nothing to do.
    """
    run = subject.run
    earlier = to_improve(run.id, kept) if thought.degraded else None
    if earlier is not None:
        return await follow(runtime.queue, session, run, REFLECT, earlier.as_input())
    outcome = subject.material.context.outcome
    found = thought.found
    said = (
        hints(subject.used, ready.verdicts, found, outcome, trace_id=subject.trace.id)
        if found
        else []
    )
    taught = [lesson.memory_id for lesson in lessons]
    return await to_curator(runtime, session, run, subject.home, taught, said)


def _log_stored(subject: Subject, answer: GenerateAnswer) -> None:
    context = subject.material.context
    if answer.reflection_id is not None:
        log.info(
            "reflection_stored",
            tenant_id=context.tenant_id,
            project_id=context.project_id,
            reflection_id=str(answer.reflection_id),
            importance=answer.importance,
        )


def _answer(
    subject: Subject,
    thought: Thought,
    kept: Sequence[Kept],
    lessons: Sequence[Kept],
    ready: Ready,
    step: Run | None,
) -> GenerateAnswer:
    result = thought.result if kept else None
    answer = GenerateAnswer(
        trace_id=subject.trace.id,
        run_id=subject.run.id,
        engine=thought.engine,
        degraded=thought.degraded,
        result="nothing_found",
        verdicts=[
            Judged(key=v.key, tag=v.tag, judge=v.judge, reason=v.reason) for v in ready.verdicts
        ],
        strategies=[Taught(id=lesson.memory_id, new=lesson.new) for lesson in lessons],
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
