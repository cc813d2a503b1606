"""What is known besides a trace, and the facts that follow from both. Reads no database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from memory_api.core.isolated_work import run_isolated
from memory_api.trace_analysis.analyze import ReflectionContext, analyze_trace
from memory_api.trace_analysis.attempts import Attempt
from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.ground_truth import comparison_size
from memory_api.traces.schemas import EventType


@dataclass(frozen=True)
class PromptBullet:
    """A used bullet as a model sees it. `usage` is named, cited or served."""

    key: str
    text: str
    usage: str = "served"


@dataclass(frozen=True)
class PromptLesson:
    """A stored lesson of the same task, or of a task with the same tools. A model that is shown it
    can name it instead of writing it again.
    """

    text: str
    memory_id: UUID


@dataclass(frozen=True)
class Evidence:
    """What is known besides the trace: earlier attempts, newest first, the ground truth, a test
    report. `bullets`, `lessons` and `task_hints` are for the prompt.
    """

    attempts: Sequence[Attempt] = ()
    ground_truth: Any = None
    test_report: str | None = None
    bullets: Sequence[PromptBullet] = ()
    lessons: Sequence[PromptLesson] = ()
    task_hints: Sequence[str] = ()
    """Hints that earlier reflections noted for this task, newest first."""
    focus: str | None = None
    """What the owner of the playbook wants to keep."""

    @property
    def attempts_in_order(self) -> list[Attempt]:
        """The attempts, oldest first."""
        return list(reversed(self.attempts))


async def analyze(context: ReflectionContext, evidence: Evidence) -> Sequence[Fact]:
    """The facts of a trace, in a process of its own if the input is large. Raises `WorkTimeout`."""
    analyze = partial(
        analyze_trace,
        context,
        attempts=evidence.attempts_in_order,
        ground_truth=evidence.ground_truth,
        test_report=evidence.test_report,
    )
    return await run_isolated(analyze, input_size(context, evidence), context.tenant_id)


def input_size(context: ReflectionContext, evidence: Evidence) -> int:
    """About how many characters there are to analyze. An event counts for 100 more, for the work
    that does not depend on its length.
    """
    events = [*context.events, *(e for attempt in evidence.attempts for e in attempt.events)]
    stated = (context.task_description, context.task_goal, context.generated_answer)
    size = sum(len(event.content) + 100 for event in events)
    size += sum(len(text) for text in (*stated, evidence.test_report) if text)
    calls = sum(event.event_type is EventType.TOOL_CALL for event in events)
    return size + comparison_size(evidence.ground_truth, calls, size)
