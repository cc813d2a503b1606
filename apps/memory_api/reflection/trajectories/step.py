"""How to learn from a trajectory (S1): as from a trace, with its rules as insights."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.context import ReflectionInput
from memory_api.reflection.schemas import ModelFailure, ReflectionResult
from memory_api.reflection.step import Lessons, SavedLessons, TraceLearner
from memory_api.reflection.trajectories.conversion import to_insight
from memory_api.reflection.trajectories.schemas import BulletEvaluation, ReflectOnTrajectoryResponse
from memory_api.runs.tables import RunRow

TRAJECTORY = "trajectory"
"""The kind of run."""


class TrajectoryLearner(TraceLearner):
    """Learns from the trace that a trajectory became: one model call, so one iteration."""

    kind = TRAJECTORY

    async def load(self, session: AsyncSession, run: RunRow) -> ReflectionInput:
        """A bullet that was only served is not one that the trajectory used."""
        input = await super().load(session, run)
        used = [bullet for bullet in input.used_bullets if bullet.usage != "served"]
        return replace(input, used_bullets=used)

    def to_lesson(
        self, input: ReflectionInput, draft: MemoryDraft, result: ReflectionResult | None
    ) -> MemoryDraft:
        fields = to_insight(input.context, result, draft.content).model_dump()
        return replace(draft, kind=MemoryKind.INSIGHT, metadata=draft.metadata | fields)

    def response(
        self, input: ReflectionInput, lessons: Lessons, saved: SavedLessons
    ) -> ReflectOnTrajectoryResponse:
        ids = {
            draft.content: saved.lessons[draft.id].memory_id
            for draft in lessons.strategies
            if draft.id in saved.lessons
        }
        rules = [*(draft.content for draft in lessons.strategies), *lessons.reused_rules]
        failure = lessons.failure
        return ReflectOnTrajectoryResponse(
            insights=[to_insight(input.context, lessons.result, rule) for rule in rules],
            bullet_evaluations=[
                BulletEvaluation(bullet_id=each.key, tag=each.tag, reason=each.reason)
                for each in lessons.tags
            ],
            trajectory_query=input.trace.query or "",
            trajectory_dataset=input.trace.playbook or "",
            run_id=input.run.id,
            trace_id=input.trace.id,
            insight_ids=[ids.get(rule) for rule in rules],
            engine=lessons.engine,
            degraded=failure is not None,
            error=ModelFailure(code=failure.code, message=failure.detail) if failure else None,
            next_run_id=saved.next_run_id,
        )
