"""How to learn from a trajectory (S1): insights, and verdicts on the bullets it used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.llm.model_session import ModelSession
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection import rules
from memory_api.reflection.context import ReflectionInput, load_reflection_input
from memory_api.reflection.model_output import ModelVerdict
from memory_api.reflection.pipeline import Learner, Lessons, SavedLessons
from memory_api.reflection.schemas import ModelFailure
from memory_api.reflection.trajectories.generate import TrajectoryInput, analyze_trajectory
from memory_api.reflection.trajectories.prompt import BUILTIN, ReflectorPromptBuilder
from memory_api.reflection.trajectories.schemas import (
    Insight,
    ReflectOnTrajectoryResponse,
    Trajectory,
    TrajectoryResult,
)
from memory_api.runs.tables import RunRow
from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.scores import calculate_confidence, calculate_importance

TRAJECTORY = "trajectory"
"""The kind of run."""
MAX_ITERATIONS = "max_iterations"
"""Key of the run's input: the maximum number of rounds."""
SOURCE = "reflector_agent"
PROMPT_FOLDER = "reflector"


@dataclass(frozen=True)
class TrajectoryLessons(Lessons):
    result: TrajectoryResult = field(kw_only=True)
    draft_ids: Mapping[str, UUID] = field(default_factory=dict[str, UUID])
    """Key insight → its draft. An insight that was copied from the playbook has none."""


class TrajectoryLearner(Learner[ReflectionInput, TrajectoryLessons]):
    """Learns from a trajectory: up to `max_iterations` model calls, then one per missing bullet."""

    kind = TRAJECTORY

    def builtin_prompt(self, name: str) -> str:
        return BUILTIN[name.removeprefix(f"{PROMPT_FOLDER}/")]

    async def load(self, session: AsyncSession, run: RunRow) -> ReflectionInput:
        """A bullet that was only served is not one that the trajectory used."""
        input = await load_reflection_input(session, run)
        used = [bullet for bullet in input.used_bullets if bullet.usage != "served"]
        return replace(input, used_bullets=used)

    async def generate(
        self, input: ReflectionInput, facts: Sequence[Fact], model: ModelSession | None
    ) -> TrajectoryLessons:
        analysis = await analyze_trajectory(
            _trajectory_input(input, facts),
            _prompt_builder(model),
            model,
            max_iterations=input.run.input.get(MAX_ITERATIONS, 1),
        )
        insights = [i for i in analysis.result.insights if not input.is_reused(i.key_insight)]
        drafts = [_draft(input, facts, insight, analysis.engine) for insight in insights]
        return TrajectoryLessons(
            drafts,
            playbook_lessons=[draft.id for draft in drafts],
            tags=[
                ModelVerdict(key=e.bullet_id, tag=e.tag, reason=e.reason)
                for e in analysis.result.bullet_evaluations
            ],
            engine=analysis.engine,
            failure=analysis.failure,
            prompt_hash=analysis.prompt_hash,
            usage=analysis.usage,
            result=analysis.result,
            draft_ids={i.key_insight: d.id for i, d in zip(insights, drafts, strict=True)},
        )

    def response(
        self, input: ReflectionInput, lessons: TrajectoryLessons, saved: SavedLessons
    ) -> ReflectOnTrajectoryResponse:
        memory_ids = {
            key_insight: saved.lessons[draft_id].memory_id
            for key_insight, draft_id in lessons.draft_ids.items()
        }
        failure = lessons.failure
        return ReflectOnTrajectoryResponse(
            **lessons.result.model_dump(),
            run_id=input.run.id,
            trace_id=input.trace.id,
            insight_ids=[memory_ids.get(i.key_insight) for i in lessons.result.insights],
            engine=lessons.engine,
            degraded=failure is not None,
            error=ModelFailure(code=failure.code, message=failure.detail) if failure else None,
            next_run_id=saved.next_run_id,
        )


def _trajectory_input(input: ReflectionInput, facts: Sequence[Fact]) -> TrajectoryInput:
    trace = input.trace
    trajectory = Trajectory(
        query=trace.query or "",
        generated_answer=trace.generated_answer or "",
        reasoning_steps=trace.reasoning_steps or [],
        used_bullet_ids=trace.used_bullet_keys,
        dataset=trace.playbook or "",
    )
    return TrajectoryInput(
        trajectory,
        input.context,
        facts,
        trace.ground_truth or "",
        trace.test_report or "",
        trace.playbook or "",
        [used.bullet for used in input.used_bullets],
        [lesson.text for lesson in input.related_lessons],
    )


def _prompt_builder(model: ModelSession | None) -> ReflectorPromptBuilder:
    """With the prompts of the model session, which are those of the trace's playbook."""
    if model is None:
        return ReflectorPromptBuilder()

    def find(name: str, dataset: str) -> str:
        return model.prompt(f"{PROMPT_FOLDER}/{name}").text

    return ReflectorPromptBuilder(find=find, budget=model.prompt_tokens)


def _draft(
    input: ReflectionInput, facts: Sequence[Fact], insight: Insight, engine: str
) -> MemoryDraft:
    """Scores and tags come from the rules, because the trajectory could dictate a model's."""
    trace, context = input.trace, input.context
    category = rules.error_category_of(facts, context)
    tags = rules.rule_tags(facts, context)
    return MemoryDraft(
        kind=MemoryKind.INSIGHT,
        project_id=trace.project_id,
        content=insight.key_insight,
        tags=tags if trace.outcome else tags[1:],  # the first tag is the outcome
        importance=calculate_importance(context.outcome, facts),
        confidence=calculate_confidence(facts),
        source=SOURCE,
        error_category=category.value if category else None,
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata=insight.model_dump() | {"playbook": trace.playbook, "engine": engine},
        actor=f"engine:{SOURCE}",
        run_id=input.run.id,
    )
