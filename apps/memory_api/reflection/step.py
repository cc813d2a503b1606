"""How to learn from a trace (S5): a reflection, its strategy, lessons from comparing the attempts
at the task, and an episode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.llm.errors import LLMError
from memory_api.llm.model_session import ModelSession
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.verdicts.record import NewVerdict, RecordedVerdict
from memory_api.reflection.batches.share import find_shared_reflection
from memory_api.reflection.bullet_usage import UsedBullet
from memory_api.reflection.context import (
    ReflectionInput,
    find_related_lessons,
    load_reflection_input,
)
from memory_api.reflection.generate import generate_reflection
from memory_api.reflection.lesson_drafts import (
    SOURCE,
    comparison_drafts,
    episode_draft,
    reflection_drafts,
    user_rule_drafts,
)
from memory_api.reflection.lesson_storage import SavedLesson, degraded_run_of
from memory_api.reflection.model_output import ModelVerdict
from memory_api.reflection.schemas import (
    GenerateReflectionResponse,
    ReflectionResult,
    StrategySummary,
    VerdictSummary,
)
from memory_api.runs.chain import REFLECT
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.trace_analysis.facts import Fact

log = structlog.get_logger()

RESPONSE_FIELDS = set(ReflectionResult.model_fields) & set(GenerateReflectionResponse.model_fields)
"""Fields that the response takes from the result unchanged."""


@dataclass(frozen=True)
class Lessons:
    """What one trace taught. Nothing is stored yet. `result` is None if there was nothing to learn.
    `reused_rules` are copied from the playbook: that is a use of it, no new lesson.
    """

    memories: Sequence[MemoryDraft] = ()
    """A reflection with its strategies; then strategies from comparing the attempts at the task,
    and rules that the user stated.
    """
    episode: MemoryDraft | None = None
    playbook_lessons: Collection[UUID] = ()
    """IDs of the drafts that go to the playbook."""
    confirmed_lessons: Collection[UUID] = ()
    """IDs of stored lessons that this trace confirms. Each gets one more observation."""
    tags: Sequence[ModelVerdict] = ()
    """The model's verdicts, validated against the bullets that it was shown."""
    tagged_bullets: Sequence[UsedBullet] | None = None
    """The bullets that `tags` may be about; None stands for all used bullets."""
    engine: str = "rules"
    failure: LLMError | None = None
    """Why the rules stood in for the model, or why a part of the model's work is missing."""
    prompt_hash: str | None = None
    usage: dict[str, Any] | None = None
    result: ReflectionResult | None = None
    reused_rules: Sequence[str] = ()

    @property
    def of_result(self) -> list[MemoryDraft]:
        """The reflection and its own strategies."""
        return [draft for draft in self.memories if draft.source == SOURCE]

    @property
    def strategies(self) -> list[MemoryDraft]:
        return [draft for draft in self.memories if draft.kind is not MemoryKind.REFLECTION]


@dataclass(frozen=True)
class SavedLessons:
    """What was stored of `Lessons`."""

    lessons: Mapping[UUID, SavedLesson]
    """By draft ID. A draft that was not stored is missing."""
    verdicts: Sequence[NewVerdict] = ()
    recorded: Sequence[RecordedVerdict] = ()
    """The verdicts that were recorded; none if the request asked for none."""
    next_run_id: UUID | None = None

    def of(self, drafts: Sequence[MemoryDraft]) -> list[SavedLesson]:
        """The stored ones of these drafts, in their order."""
        return [self.lessons[draft.id] for draft in drafts if draft.id in self.lessons]


class TraceLearner:
    """How to learn from a trace: with one model call, which short runs share. `kind` is the kind of
    run.
    """

    kind: str = REFLECT

    async def load(self, session: AsyncSession, run: RunRow) -> ReflectionInput:
        return await load_reflection_input(session, run)

    async def prepare(
        self, runtime: Runtime, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession
    ) -> ReflectionInput:
        """What else a model needs: what it answered about this run among several, or lessons of
        similar tasks.
        """
        shared = await find_shared_reflection(runtime, input, facts, model)
        if shared is not None:
            return replace(input, shared=shared)
        related = await find_related_lessons(runtime, input)
        return replace(input, related_lessons=related)

    async def generate(
        self, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession | None
    ) -> Lessons:
        """Lessons of a model, or of the rules without one. Raises the model's `LLMError`, unless
        the session says that the rules stand in.
        """
        generated = await generate_reflection(
            input.context, input.evidence, model, facts=facts, shared=input.shared
        )
        rules = generated.result.rules if generated.result else []
        reused = [rule for rule in rules if input.is_reused(rule)]
        result = _without_rules(generated.result, reused)
        memories: list[MemoryDraft] = []
        if result is not None:
            memories = reflection_drafts(
                result,
                project_id=input.context.project_id,
                session_id=input.context.session_id,
                context=input.context,
                trace_id=input.trace.id,
                run_id=input.run.id,
            )
        reflection, strategies = memories[:1], memories[1:]
        if generated.engine == "rules":  # a model has seen the differences between the attempts
            strategies += _task_drafts(input, facts, memories)
        strategies = [self.to_lesson(input, each, result) for each in strategies]
        # A strategy from a comparison of attempts is for the next attempt at the same task.
        general = [draft.id for draft in strategies if "of_group" not in draft.metadata]
        return Lessons(
            [*reflection, *strategies],
            episode_draft(input, facts),
            playbook_lessons=general,
            tags=generated.verdicts,
            confirmed_lessons=generated.confirmed_lessons,
            engine=generated.engine,
            failure=generated.failure,
            prompt_hash=generated.prompt_hash,
            usage=generated.usage,
            result=result,
            reused_rules=reused,
        )

    def to_lesson(
        self, input: ReflectionInput, draft: MemoryDraft, result: ReflectionResult | None
    ) -> MemoryDraft:
        """A strategy in the form that this kind of run stores."""
        return draft

    def records_verdicts(self, input: ReflectionInput) -> bool:
        """Whether the playbook changes: its verdicts are recorded, its curator gets the lessons."""
        return True

    def verdict_trace_id(self, input: ReflectionInput) -> UUID:
        """The trace that the verdicts are counted for. Another trace than that of the input was
        counted already, so its lessons are no further observation.
        """
        return input.trace.id

    def response(self, input: ReflectionInput, lessons: Lessons, saved: SavedLessons) -> BaseModel:
        """The answer to the client, which is also the result of the run."""
        own = saved.of(lessons.of_result)
        strategies = saved.of(lessons.strategies)
        response = GenerateReflectionResponse(
            trace_id=input.trace.id,
            run_id=input.run.id,
            engine=lessons.engine,
            degraded=lessons.failure is not None,
            result="nothing_found",
            verdicts=[
                VerdictSummary(key=v.key, tag=v.tag, judge=v.judge, reason=v.reason)
                for v in saved.verdicts
            ],
            strategies=[StrategySummary(id=s.memory_id, new=s.is_new) for s in strategies],
            confirmed_lesson_ids=list(lessons.confirmed_lessons),
            next_run_id=saved.next_run_id,
        )
        if lessons.result is None or not own:
            return response
        return response.model_copy(
            update={
                "reflection_id": own[0].memory_id,
                "strategy_id": own[1].memory_id if len(own) > 1 else None,
                "result": "stored" if own[0].is_new else "already_known",
                **lessons.result.model_dump(include=RESPONSE_FIELDS),
                "reflection_text": lessons.memories[0].content,  # as it is stored
            }
        )


def _without_rules(
    result: ReflectionResult | None, reused: Sequence[str]
) -> ReflectionResult | None:
    """Without rules that were copied from the playbook: that is a use of it, no new lesson."""
    if result is None or not reused:
        return result
    log.info("reused_rules_dropped", count=len(reused))
    rules = [rule for rule in result.rules if rule not in reused]
    update = {"strategy_text": rules[0] if rules else None, "rules": rules}
    return result.model_copy(update=update)


def _task_drafts(
    input: ReflectionInput, facts: Sequence[Fact], memories: Sequence[MemoryDraft]
) -> list[MemoryDraft]:
    """Lessons from comparing the attempts at the task, and rules that the user stated, without
    those that `memories` contain. A run that replaces degraded lessons adds none: the degraded run
    stored them.
    """
    if degraded_run_of(input.run) is not None:
        return []
    texts = {draft.content for draft in memories}
    drafts = [
        *comparison_drafts(input, facts),
        *user_rule_drafts(input, facts),
    ]
    return [d for d in drafts if d.content not in texts and not input.is_reused(d.content)]
