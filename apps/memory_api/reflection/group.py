"""The attempts of one task, looked at together: what did those that succeeded do that the others
did not. Pure but for `task_lessons`.

At most `MOST` lessons stand for a task, whenever its attempts came in. Each names one tool, so that
a later attempt gives the same words again, and what is said again is a witness and no new row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.evaluation.actions import Departure
from apps.memory_api.memory.prepare import Draft
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.reflection.findings.contrast import find_again, find_contrast
from apps.memory_api.reflection.findings.schemas import Attempt, Contrast
from apps.memory_api.reflection.findings.words.advice_en import EnglishAdvice
from apps.memory_api.reflection.findings.words.advice_ja import JapaneseAdvice
from apps.memory_api.reflection.findings.words.protocol import Advice
from apps.memory_api.reflection.material import Material
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.steps import Run, Step, read
from apps.memory_api.traces.tables import Trace

LESSONS = load(__file__, "task_lessons.sql")
MOST = 3
"""Lessons of one task."""
COMPARED = 16
"""Attempts that are looked at, the latest."""
SHOWN = 20
"""Lessons of the task that are shown."""
IMPORTANCE = 0.8
SOURCE = "contrast"
_CALLS = 6
_ADVICE: dict[str, Advice] = {"en": EnglishAdvice(), "ja": JapaneseAdvice()}


@dataclass(frozen=True)
class GroupLesson:
    """One rule from several attempts. `trace_id` is the attempt it is read off, `event` the step in
    it; `kind` says by what they differed: argument, quotes, tool_used, tool_held_back or repeated.
    """

    text: str
    kind: str
    trace_id: str | None = None
    event: str | None = None
    attempts: int = 0


@dataclass(frozen=True)
class TaskLesson:
    """A lesson the task has already; `of_group` when it was learnt from several attempts."""

    text: str
    of_group: bool = False


@dataclass(frozen=True)
class _Side:
    """Attempts that ended alike, oldest first, each with its run."""

    attempts: tuple[Attempt, ...]
    runs: tuple[Run, ...]

    def tools(self) -> Counter[str]:
        """In how many of the runs each tool worked at least once."""
        return Counter(tool for run in self.runs for tool in {s.tool for s in _worked(run)})

    def changing(self) -> Counter[str]:
        return Counter(
            tool for run in self.runs for tool in {s.tool for s in _worked(run) if s.writes}
        )

    def tried(self) -> set[str]:
        """The tools any of the runs called, whether they worked or not."""
        return {step.tool for run in self.runs for step in run.steps}


def group_lessons(
    attempts: Sequence[Attempt], known: Iterable[TaskLesson] = ()
) -> list[GroupLesson]:
    """The rules that the attempts of one task teach together, oldest attempt first, the surest rule
    first; none when they all ended alike, but for failures that only repeat each other.

    `known` are the lessons the task has: what they say already is answered once more (it becomes a
    witness), and only so many new ones that the task has no more than `MOST` of its group.
    """
    won, lost = _sides(attempts)
    found: dict[str, GroupLesson] = {}
    for lesson in _differences(won, lost):
        found.setdefault(lesson.text, lesson)
    said = list(known)
    have = {lesson.text for lesson in said}
    room = max(0, MOST - len({lesson.text for lesson in said if lesson.of_group}))
    again = [lesson for text, lesson in found.items() if text in have]
    new = [lesson for text, lesson in found.items() if text not in have]
    return [*again, *new[:room]][:MOST]


def group_block(attempts: Sequence[Attempt]) -> str:
    """What set the attempts apart, as plain lines for a prompt; '' when they all ended alike.

    It quotes calls of the runs: whoever shows it fences it like the trace.
    """
    won, lost = _sides(attempts)
    if not won.runs or not lost.runs:
        return ""
    lines = [f"{len(won.runs)} attempts succeeded, {len(lost.runs)} did not."]
    for name, side in (("succeeded", won), ("did not succeed", lost)):
        for run in side.runs[-2:]:
            calls = "; ".join(cut(step.call, 80) for step in run.steps[:_CALLS])
            more = "; …" if len(run.steps) > _CALLS else ""
            lines.append(f"An attempt that {name} called: {calls or 'nothing'}{more}")
    for name, ours, theirs in (("succeeded", won, lost), ("did not succeed", lost, won)):
        only = [tool for tool, _ in ours.tools().most_common() if tool not in theirs.tried()]
        if only:
            lines.append(f"Used only by attempts that {name}: {', '.join(only[:_CALLS])}")
    return "\n".join(lines)


async def task_lessons(session: AsyncSession, trace: Trace) -> list[TaskLesson]:
    """What the task of this run has taught so far, newest first, each text once."""
    if trace.task_key is None:
        return []
    given = {
        "tenant": tenant_of(session),
        "project": trace.project_id,
        "task": trace.task_key,
        "most": SHOWN,
    }
    found: dict[str, TaskLesson] = {}
    for row in (await session.execute(LESSONS, given)).all():
        before = found.get(row.content)
        together = row.of_group or (before is not None and before.of_group)
        found[row.content] = TaskLesson(row.content, together)
    return list(found.values())


def group_drafts(
    material: Material, known: Iterable[TaskLesson], run_id: UUID | None = None
) -> list[Draft]:
    """What the attempts of the run's task, itself included, teach together: strategies to be kept
    like its own. None for a run without a task.
    """
    trace, context = material.trace, material.context
    if trace.task_key is None:
        return []
    this = Attempt(context.outcome, context.events, str(trace.id))
    attempts = [*reversed(material.evidence.attempts), this]  # they were loaded newest first
    return [
        Draft(
            kind=Kind.STRATEGY,
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
                "task_key": trace.task_key,
                "difference": lesson.kind,
                "attempts": lesson.attempts,
                "read_off": lesson.trace_id,
            },
            actor=f"engine:{SOURCE}",
            run_id=run_id,
        )
        for lesson in group_lessons(attempts, known)
    ]


def _sides(attempts: Sequence[Attempt]) -> tuple[_Side, _Side]:
    near = [a for a in attempts if a.outcome is not OutcomeType.PARTIAL][-COMPARED:]
    won = tuple(a for a in near if a.outcome is OutcomeType.SUCCESS)
    lost = tuple(a for a in near if a.outcome is not OutcomeType.SUCCESS)
    return (
        _Side(won, tuple(read(a.events) for a in won)),
        _Side(lost, tuple(read(a.events) for a in lost)),
    )


def _differences(won: _Side, lost: _Side) -> Iterator[GroupLesson]:
    if won.runs and lost.runs:
        yield from _parted(won, lost)
    if len(lost.runs) > 1:
        yield from _repeated(lost)


def _parted(won: _Side, lost: _Side) -> Iterator[GroupLesson]:
    """An argument that differed, quotation marks, a tool only successes used, one only failures
    used.
    """
    model, run = won.attempts[-1], won.runs[-1]
    say = _ADVICE.get(run.language, _ADVICE["en"])
    many = len(won.runs) + len(lost.runs)

    def lesson(text: str | None, kind: str, event: str | None) -> Iterator[GroupLesson]:
        if text:
            yield GroupLesson(text, kind, model.trace_id, event, many)

    contrast = find_contrast(run, OutcomeType.SUCCESS, lost.attempts)
    if contrast and contrast.changes:
        yield from lesson(say.as_the_success(contrast), "argument", contrast.event)
    if contrast and contrast.unquoted:
        yield from lesson(say.drop_quotes(contrast.unquoted), "quotes", contrast.event)
    tool = _only(won.tools(), len(won.runs), lost.tried())
    if tool:
        used = Contrast(True, None, None, (), (), (tool,), ())
        yield from lesson(say.as_the_success(used), "tool_used", _first(run, tool))
    tool = _only(lost.changing(), len(lost.runs), won.tried())
    if tool:
        held = say.hold_back(Departure("extra", None, tool, ""))
        yield from lesson(held, "tool_held_back", None)


def _repeated(lost: _Side) -> Iterator[GroupLesson]:
    """Failures that made the same calls over again."""
    last, run = lost.attempts[-1], lost.runs[-1]
    again = find_again(run, last.outcome, lost.attempts[:-1])
    if again is not None:
        say = _ADVICE.get(run.language, _ADVICE["en"])
        first = replace(again, trace_id=None)
        event = run.steps[0].event
        text = say.start_otherwise(first)
        yield GroupLesson(text, "repeated", last.trace_id, event, again.times + 1)


def _worked(run: Run) -> Iterator[Step]:
    return (s for s in run.steps if s.tool and not s.failure and s.verdict is None)


def _only(ours: Counter[str], runs: int, theirs: set[str]) -> str | None:
    """The tool most of these runs used and none of the others; the first by name among equals."""
    often = [(-n, tool) for tool, n in ours.items() if tool not in theirs and 2 * n > runs]
    return min(often)[1] if often else None


def _first(run: Run, tool: str) -> str | None:
    return next((s.event for s in run.steps if s.tool == tool), None)
