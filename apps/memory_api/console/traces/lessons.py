"""What was learned from a trace, and why nothing was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from hansei.nothing_learned import (
    NO_LESSON,
    NO_LESSON_BY_RULES,
    WhyNothing,
    evaluation_of,
    why_nothing,
)
from memory_api.console.queries import list_decisions_on
from memory_api.memories.queries import get_memories, list_memories
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.runs.chain import REFLECT
from memory_api.runs.schemas import Run
from memory_api.traces.schemas import TraceWithEvents

KINDS = (MemoryKind.REFLECTION, MemoryKind.STRATEGY, MemoryKind.INSIGHT)
STATUSES = (MemoryStatus.ACTIVE, MemoryStatus.QUARANTINED, MemoryStatus.ARCHIVED)
SHOWN_LESSONS = 150


@dataclass(frozen=True, slots=True)
class Learned:
    lessons: Sequence[MemoryRow]
    """Whether agents get them or not, newest first."""
    decisions: dict[UUID, Any]
    """Memory ID → the row of `list_decisions_on`: what the playbook made of it."""
    evidence: set[str]
    """The events that reflections name."""
    evaluation: dict[str, Any]
    """The result of the newest evaluation: its verdict, and why nothing was reflected on."""
    why_nothing: WhyNothing
    """Why there is no lesson, if there is none. `evaluation` has the reason of the first value."""
    known: Sequence[MemoryRow]
    """Lessons of earlier traces that this one teaches again."""
    has_failed_run: bool

    @property
    def found_nothing_new(self) -> bool:
        """Whether Hansei looked for lessons in the trace. If not, `why_nothing` says why."""
        looked = (WhyNothing.NOT_REFLECTED_ON, WhyNothing.RULES, WhyNothing.NOTHING_FOUND)
        return bool(self.known) or (self.why_nothing in looked and not self.has_failed_run)

    @property
    def lacks_lesson(self) -> bool:
        """Whether a reflection said what happened, and no advice followed."""
        return {lesson.kind for lesson in self.lessons} == {MemoryKind.REFLECTION}

    @property
    def no_lesson(self) -> str:
        by_rules = all(lesson.metadata_.get("model") is None for lesson in self.lessons)
        return NO_LESSON_BY_RULES if by_rules else NO_LESSON


async def load_learned(
    session: AsyncSession, trace: TraceWithEvents, runs: Sequence[Run]
) -> Learned:
    """Args: runs: those of the trace, newest first."""
    found = await list_memories(
        session,
        project_id=trace.project_id,
        kinds=KINDS,
        statuses=STATUSES,
        trace_id=trace.id,
        limit=SHOWN_LESSONS,
    )
    lessons = found[:SHOWN_LESSONS]
    decisions = await list_decisions_on(session, [lesson.id for lesson in lessons])
    reflections = [lesson for lesson in lessons if lesson.kind == MemoryKind.REFLECTION]
    evidence = trace.outcome or trace.ground_truth or trace.test_report
    why, _ = why_nothing(runs, is_open=trace.state == "open", has_outcome=bool(evidence))
    ids = _taught_ids(runs) - {lesson.id for lesson in lessons}
    return Learned(
        lessons,
        {decision.memory_id: decision for decision in decisions},
        {event for item in reflections for event in item.source_event_ids},
        evaluation_of(runs),
        why,
        list((await get_memories(session, ids)).values()) if ids else [],
        any(run.state in ("failed", "dead") for run in runs),
    )


def _taught_ids(runs: Sequence[Run]) -> set[UUID]:
    """The reflections and strategies that the runs name in their results."""
    found: set[UUID] = set()
    for run in runs:
        result: Any = run.result if run.kind == REFLECT else None
        if isinstance(result, dict):
            summary = cast("dict[str, Any]", result)
            strategies = [item["id"] for item in summary.get("strategies") or ()]
            found |= {UUID(id) for id in (summary.get("reflection_id"), *strategies) if id}
    return found
