"""Lessons from several attempts at one task: what successful attempts did and failed ones did not.
Pure.

A task has at most `MAX_LESSONS_PER_TASK` such lessons. Each names one tool, so a later attempt
gives the same text, which is counted as another observation of the stored lesson.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.context import TOOLS, TaskLesson, TraceContext, used_tools
from memory_api.reflection.rules.english_strategies import EnglishStrategies
from memory_api.reflection.rules.japanese_strategies import JapaneseStrategies
from memory_api.reflection.rules.language import StrategyLanguage
from memory_api.trace_analysis.context import Attempt
from memory_api.trace_analysis.detectors.attempts import (
    contrast_attempts,
    find_repeated_attempts,
)
from memory_api.trace_analysis.findings import AttemptContrast
from memory_api.trace_analysis.ground_truth import ActionDeviation
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, parse_trace
from memory_api.traces.schemas import OutcomeType

MAX_LESSONS_PER_TASK = 3
"""Lessons per task."""
MAX_COMPARED_ATTEMPTS = 16
"""The number of latest attempts that are compared."""

IMPORTANCE = 0.8
SOURCE = "contrast"
_ADVICE: dict[str, StrategyLanguage] = {"en": EnglishStrategies(), "ja": JapaneseStrategies()}


@dataclass(frozen=True)
class ComparisonLesson:
    """A strategy from several attempts. `trace_id` and `event` are the attempt and the call that
    show it. `kind` is the difference: argument, quotes, tool_used, tool_held_back or repeated.
    """

    text: str
    kind: str
    trace_id: str | None = None
    event: str | None = None
    attempts: int = 0


@dataclass(frozen=True)
class _AttemptGroup:
    """Attempts with the same kind of outcome, oldest first, each with its run."""

    attempts: tuple[Attempt, ...]
    runs: tuple[ParsedTrace, ...]

    def tools(self) -> Counter[str]:
        """For each tool, the number of runs in which it succeeded at least once."""
        return Counter(tool for run in self.runs for tool in {s.tool for s in _worked(run)})

    def changing(self) -> Counter[str]:
        return Counter(
            tool for run in self.runs for tool in {s.tool for s in _worked(run) if s.writes}
        )

    def tried(self) -> set[str]:
        """The tools that any of the runs called, including failed calls."""
        return {step.tool for run in self.runs for step in run.calls}


def compare_attempts(
    attempts: Sequence[Attempt], known: Iterable[TaskLesson] = ()
) -> list[ComparisonLesson]:
    """The strategies that the attempts at one task (oldest first) support together, the strongest
    first. Without both outcomes there are none, except for failures that repeat each other.

    `known` are the stored lessons of the task. Known texts are returned again (as observations),
    new ones only until the task has `MAX_LESSONS_PER_TASK` lessons from several attempts.
    """
    won, lost = _sides(attempts)
    lessons: dict[str, ComparisonLesson] = {}
    for lesson in _differences(won, lost):
        lessons.setdefault(lesson.text, lesson)
    known = list(known)
    known_texts = {lesson.text for lesson in known}
    known_count = len({lesson.text for lesson in known if lesson.of_group})
    max_new = max(0, MAX_LESSONS_PER_TASK - known_count)
    repeated = [lesson for text, lesson in lessons.items() if text in known_texts]
    new = [lesson for text, lesson in lessons.items() if text not in known_texts]
    return [*repeated, *new[:max_new]][:MAX_LESSONS_PER_TASK]


def comparison_drafts(
    trace_context: TraceContext, known: Iterable[TaskLesson], run_id: UUID | None = None
) -> list[MemoryDraft]:
    """The strategies of `compare_attempts` for the task of this run; none without a task key."""
    trace, context = trace_context.trace, trace_context.context
    if trace.task_key is None:
        return []
    this = Attempt(context.outcome, context.events, str(trace.id))
    attempts = [*reversed(trace_context.evidence.attempts), this]  # they were loaded newest first
    return [
        MemoryDraft(
            kind=MemoryKind.STRATEGY,
            project_id=trace.project_id,
            content=lesson.text,
            tags=["contrast", "strategy"],
            importance=IMPORTANCE,
            confidence=1 - 1 / (1 + lesson.attempts),
            source=SOURCE,
            outcome=trace.outcome,
            session_id=trace.session_id,
            trace_id=trace.id,
            source_event_ids=[lesson.event] if lesson.event else [],
            metadata={
                "of_group": True,
                TOOLS: [tool.name for tool in used_tools(context)],
                "task_key": trace.task_key,
                "difference": lesson.kind,
                "attempts": lesson.attempts,
                "read_off": lesson.trace_id,
            },
            actor=f"engine:{SOURCE}",
            run_id=run_id,
        )
        for lesson in compare_attempts(attempts, known)
    ]


def _sides(attempts: Sequence[Attempt]) -> tuple[_AttemptGroup, _AttemptGroup]:
    near = [a for a in attempts if a.outcome is not OutcomeType.PARTIAL][-MAX_COMPARED_ATTEMPTS:]
    won = tuple(a for a in near if a.outcome is OutcomeType.SUCCESS)
    lost = tuple(a for a in near if a.outcome is not OutcomeType.SUCCESS)
    return (
        _AttemptGroup(won, tuple(parse_trace(a.events, tools=a.tools) for a in won)),
        _AttemptGroup(lost, tuple(parse_trace(a.events, tools=a.tools) for a in lost)),
    )


def _differences(won: _AttemptGroup, lost: _AttemptGroup) -> Iterator[ComparisonLesson]:
    if won.runs and lost.runs:
        yield from _parted(won, lost)
    if len(lost.runs) > 1:
        yield from _repeated(lost)


def _parted(won: _AttemptGroup, lost: _AttemptGroup) -> Iterator[ComparisonLesson]:
    """A different argument, quotation marks, a tool used only by successes, a changing tool used
    only by failures."""
    model, run = won.attempts[-1], won.runs[-1]
    say = _ADVICE.get(run.language, _ADVICE["en"])
    many = len(won.runs) + len(lost.runs)

    def lesson(text: str | None, kind: str, event: str | None) -> Iterator[ComparisonLesson]:
        if text:
            yield ComparisonLesson(text, kind, model.trace_id, event, many)

    contrast = contrast_attempts(run, OutcomeType.SUCCESS, lost.attempts)
    if contrast and contrast.differing_arguments:
        yield from lesson(say.follow_success(contrast), "argument", contrast.event_id)
    if contrast and contrast.tool_without_quotes:
        yield from lesson(
            say.drop_quotes(contrast.tool_without_quotes), "quotes", contrast.event_id
        )
    tool = _only(won.tools(), len(won.runs), lost.tried())
    if tool:
        used = AttemptContrast(True, None, None, (), (), (tool,), ())
        yield from lesson(say.follow_success(used), "tool_used", _first(run, tool))
    tool = _only(lost.changing(), len(lost.runs), won.tried())
    if tool:
        held = say.check_before_change(ActionDeviation("extra", None, tool, ""))
        yield from lesson(held, "tool_held_back", None)


def _repeated(lost: _AttemptGroup) -> Iterator[ComparisonLesson]:
    """Failures with the same calls."""
    last, run = lost.attempts[-1], lost.runs[-1]
    again = find_repeated_attempts(run, last.outcome, lost.attempts[:-1])
    if again is not None:
        say = _ADVICE.get(run.language, _ADVICE["en"])
        first = replace(again, trace_id=None)
        event = run.calls[0].event_id
        text = say.start_differently(first)
        yield ComparisonLesson(text, "repeated", last.trace_id, event, again.earlier_count + 1)


def _worked(run: ParsedTrace) -> Iterator[ToolCall]:
    return (s for s in run.calls if s.tool and not s.failure_message and s.is_correct is None)


def _only(ours: Counter[str], runs: int, theirs: set[str]) -> str | None:
    """The tool that most of these runs used and none of the others; ties are broken by name."""
    often = [(-n, tool) for tool, n in ours.items() if tool not in theirs and 2 * n > runs]
    return min(often)[1] if often else None


def _first(run: ParsedTrace, tool: str) -> str | None:
    return next((s.event_id for s in run.calls if s.tool == tool), None)
