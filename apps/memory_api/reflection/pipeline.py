"""The one pipeline for learning from a trace, whatever its form.

    load → analyze → generate → judge → prepare │ save verdicts and lessons, next step

A `TraceLearner` decides what is loaded, how lessons are generated and what the client is answered.
`LearningStep` does everything else. No transaction is open while lessons are generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.metrics import REFLECTIONS
from memory_api.llm.errors import LLMCircuitOpen, LLMOverBudget
from memory_api.llm.model_session import ModelSession
from memory_api.memories.index.drafts import PreparedMemory, prepare_memories
from memory_api.memories.index.writer import ensure_scopes_and_labels, insert_memories
from memory_api.memories.queries import NewLink, add_links, confirm_memories, find_memory_id
from memory_api.playbooks.editing.transaction import create_missing_playbook
from memory_api.playbooks.inbox.inbox import add_lessons
from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.verdicts.record import NewVerdict
from memory_api.reflection.context import ReflectionInput
from memory_api.reflection.credit.outcome_contrast import record_and_compare
from memory_api.reflection.credit.verdicts import (
    PreparedVerdicts,
    limit_model_verdicts,
    outcome_verdicts,
    prepare_verdicts,
)
from memory_api.reflection.evidence import analyze
from memory_api.reflection.lesson_storage import (
    SavedLesson,
    degraded_run,
    degraded_run_of,
    replace_degraded,
    save_lessons,
)
from memory_api.reflection.model_output import ModelVerdict
from memory_api.reflection.outside_text import (
    OutsideTexts,
    guard_lessons,
    outside_texts_of,
    quote_reports,
)
from memory_api.reflection.step import Lessons, SavedLessons, TraceLearner
from memory_api.runs.execution import Step
from memory_api.runs.lifecycle import NextStep, QueuedRun, StepResult
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime, open_model_session
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.event_cache import EVENT_CACHE

log = structlog.get_logger()


@dataclass(frozen=True)
class PreparedLessons:
    """Everything that `LearningStep.save` writes, embedded."""

    input: ReflectionInput
    lessons: Lessons
    verdicts: Sequence[NewVerdict]
    recordable: PreparedVerdicts
    memories: Sequence[PreparedMemory] = ()
    episode: PreparedMemory | None = None
    curation_interval: timedelta = timedelta()
    """Minimum time between two curations of the playbook."""


class LearningStep(Step[ReflectionInput, PreparedLessons, StepResult]):
    """Learns from a trace in the way of a `TraceLearner`.

    With `fall_back_to_rules`, the rules stand in for a model that fails, and a second run is queued
    that replaces what they wrote with the model's lessons.
    """

    def __init__(self, learner: TraceLearner, *, fall_back_to_rules: bool = False) -> None:
        self.learner = learner
        self.kind = learner.kind
        self.fall_back_to_rules = fall_back_to_rules

    async def load(self, session: AsyncSession, run: RunRow) -> ReflectionInput:
        return await self.learner.load(session, run)

    async def compute(
        self, runtime: Runtime, run: RunRow, input: ReflectionInput
    ) -> PreparedLessons:
        model = open_model_session(
            runtime,
            run.tenant_id,
            input.trace.playbook,
            run.id,
            project_id=input.trace.project_id,
            fallback_to_rules=self.fall_back_to_rules,
        )
        facts = await analyze(input.context, input.trace_evidence)
        try:
            if model is not None:
                input = await self.learner.prepare(runtime, input, facts, model)
            lessons = await self._generate(input, facts, model)
        except LLMOverBudget as error:
            if not error.allows_rules:
                raise
            lessons = replace(await self._generate(input, facts, None), failure=error)
        trusted = runtime.settings.trusted_feedback
        outside = outside_texts_of(input.context, input.evidence, input.trace, trusted=trusted)
        count = len(lessons.memories)
        drafts = [*lessons.memories, *([lessons.episode] if lessons.episode else [])]
        drafts = await guard_lessons(drafts, outside)
        lessons = replace(
            lessons,
            memories=drafts[:count],
            episode=next(iter(drafts[count:]), None),
            tags=await _quote_reasons(lessons.tags, outside),
        )
        verdicts = self._judge(input, lessons)
        recordable = await prepare_verdicts(
            runtime,
            run.tenant_id,
            input.playbook,
            verdicts if self.learner.records_verdicts(input) else [],
        )
        missing = input.learning_playbook if input.playbook is None else None
        if missing is not None and self.learner.records_verdicts(input):
            await create_missing_playbook(runtime, run.tenant_id, missing)
        memories = await prepare_memories(await runtime.get_tenant_embedder(run.tenant_id), drafts)
        return PreparedLessons(
            input,
            lessons,
            verdicts,
            recordable,
            memories[:count],
            next(iter(memories[count:]), None),
            runtime.curation_interval if lessons.engine == "llm" else timedelta(),
        )

    async def save(
        self,
        runtime: Runtime,
        session: AsyncSession,
        run: RunRow,
        output: PreparedLessons,
    ) -> StepResult:
        recorded = await record_and_compare(session, output.input.trace, output.recordable)
        is_first = self.learner.verdict_trace_id(output.input) == output.input.trace.id
        saved = await _save_memories(session, output, count_observations=is_first)
        await confirm_memories(session, output.lessons.confirmed_lessons, output.input.trace.id)
        next_step = self._replacing_step(output, saved)
        next_run_id, queued_run = next_step.run_id if next_step else None, None
        if next_step is None and self.learner.records_verdicts(output.input):
            next_run_id, queued_run = await _add_to_inbox(session, run, output, saved)
        saved = SavedLessons(saved.lessons, output.verdicts, recorded, next_run_id)
        response = self.learner.response(output.input, output.lessons, saved)
        return StepResult(
            data=response.model_dump(mode="json"),
            engine=output.lessons.engine,
            degraded_by=output.lessons.failure,
            prompt_hash=output.lessons.prompt_hash,
            usage=output.lessons.usage,
            next_step=next_step,
            queued_run=queued_run,
        )

    async def after_commit(self, runtime: Runtime, run: RunRow, result: StepResult) -> None:
        EVENT_CACHE.drop(run.tenant_id, run.trace_id)  # the later steps of the chain read none
        data = result.data
        REFLECTIONS.labels(run.kind, result.engine, data.get("result", "stored")).inc()
        for memory_id in filter(None, [data.get("reflection_id"), *data.get("insight_ids", ())]):
            log.info(
                "reflection_stored",
                tenant_id=str(run.tenant_id),
                project_id=run.project_id,
                reflection_id=memory_id,
                importance=data.get("importance"),
            )

    async def _generate(
        self, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession | None
    ) -> Lessons:
        """The lessons of a trace, with the log events of S5."""
        context = input.context
        ids = {"tenant_id": context.tenant_id, "project_id": context.project_id}
        log.info(
            "reflection_generation_started",
            **ids,
            outcome=context.outcome.value,
            event_count=len(context.events),
        )
        try:
            lessons = await self.learner.generate(input, facts, model)
        except (LLMCircuitOpen, LLMOverBudget):
            raise  # every waiting run raises this; its cause is logged once
        except Exception as error:
            REFLECTIONS.labels(self.kind, "rules" if model is None else "llm", "failed").inc()
            log.error("reflection_generation_failed", **ids, error=str(error), exc_info=True)
            raise
        if own := lessons.of_result:
            log.info(
                "reflection_generated",
                **ids,
                importance=own[0].importance,
                confidence=own[0].confidence,
                has_strategy=len(own) > 1,
            )
        return lessons

    def _judge(self, input: ReflectionInput, lessons: Lessons) -> list[NewVerdict]:
        """The verdicts of the outcome, if the client reported one, and of the model."""
        ids = {"trace_id": self.learner.verdict_trace_id(input), "run_id": input.run.id}
        outcome = input.context.outcome
        reported = outcome if input.trace.outcome is not None else None
        bullets = input.used_bullets if lessons.tagged_bullets is None else lessons.tagged_bullets
        by_model = limit_model_verdicts(lessons.tags, bullets, outcome, **ids)
        return [*outcome_verdicts(input.used_bullets, reported, **ids), *by_model]

    def _replacing_step(self, output: PreparedLessons, saved: SavedLessons) -> NextStep | None:
        """A second run of this kind, if the rules replaced a failing model; not after a budget."""
        lessons = output.lessons
        if lessons.engine != "rules" or isinstance(lessons.failure, LLMOverBudget | None):
            return None
        degraded = degraded_run(output.input.run.id, saved.of(lessons.of_result))
        return None if degraded is None else NextStep(self.kind, degraded.to_input())


async def _quote_reasons(
    verdicts: Sequence[ModelVerdict], outside: OutsideTexts
) -> list[ModelVerdict]:
    """The verdicts with quotations in their reasons, which search finds."""
    quoted = await quote_reports({verdict.reason for verdict in verdicts}, outside)
    return [v.model_copy(update={"reason": quoted[v.reason]}) for v in verdicts]


async def _add_to_inbox(
    session: AsyncSession, run: RunRow, output: PreparedLessons, saved: SavedLessons
) -> tuple[UUID | None, QueuedRun | None]:
    """Put the lessons into the inbox of the trace's playbook. The curation that takes them, and
    that curation again if it needs a ticket.
    """
    ref, lessons = output.input.learning_playbook, output.lessons
    for_playbook = [draft for draft in lessons.memories if draft.id in lessons.playbook_lessons]
    memory_ids = [item.memory_id for item in saved.of(for_playbook)]
    # Another playbook may not have the confirmed ones.
    ids = list(dict.fromkeys([*memory_ids, *lessons.confirmed_lessons]))
    playbook = await get_playbook(session, ref) if ref is not None and ids else None
    if playbook is None or playbook.deleted_at is not None:  # learning does not restore it
        return None, None
    return await add_lessons(session, playbook, ids, run, interval=output.curation_interval)


async def _save_memories(
    session: AsyncSession, output: PreparedLessons, *, count_observations: bool
) -> SavedLessons:
    """Save lessons and episode, and link them: lessons to their episode, the strategy to its
    reflection, the reflection to related memories.
    """
    items = output.memories
    degraded = degraded_run_of(output.input.run)
    new_episodes, episode_id = list[PreparedMemory](), None
    if output.episode is not None:
        await ensure_scopes_and_labels(session, [*items, output.episode])
        episode = output.episode.draft  # a trace has at most one
        known_id = await find_memory_id(session, episode.scope_address, episode.key or "")
        new_episodes = [output.episode] if known_id is None else []
        episode_id = known_id or output.episode.draft.id

    def by_draft(saved: Sequence[SavedLesson]) -> SavedLessons:
        return SavedLessons({i.draft.id: lesson for i, lesson in zip(items, saved, strict=False)})

    def links(saved: Sequence[SavedLesson]) -> Iterable[NewLink]:
        return () if episode_id is None else _links(output, by_draft(saved), episode_id)

    if degraded is None:
        saved = await save_lessons(
            session,
            items,
            episodes=new_episodes,
            confirmed=output.lessons.confirmed_lessons,
            count_observations=count_observations,
            links=links,
        )
    else:
        await insert_memories(session, new_episodes)
        # Without a model there is nothing to replace the lessons of the rules with.
        is_better = output.lessons.engine != "rules"
        saved = await replace_degraded(session, degraded, items) if is_better else []
        await add_links(session, links(saved))
    return by_draft(saved)


def _links(output: PreparedLessons, saved: SavedLessons, episode_id: UUID) -> Iterator[NewLink]:
    lessons = output.lessons
    yield NewLink(episode_id, "derived_from", "trace", output.input.trace.id)
    for lesson in saved.of(lessons.memories):
        yield NewLink(lesson.memory_id, "derived_from", "memory", episode_id)
    own = lessons.of_result
    strategies = saved.of(own[1:])
    for reflection in saved.of(own[:1]):
        for related_id in output.input.context.related_memory_ids:
            yield NewLink(reflection.memory_id, "related_to", "memory", related_id)
        for strategy in strategies:
            yield NewLink(strategy.memory_id, "derived_from", "memory", reflection.memory_id)
