"""Everything that can be said about a run without a model, as structured evidence. Pure and
deterministic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from apps.memory_api.evaluation.actions import find_departures
from apps.memory_api.reflection.findings.answers import find_answer, find_untold
from apps.memory_api.reflection.findings.assertions import find_assertions
from apps.memory_api.reflection.findings.contrast import find_again, find_contrast
from apps.memory_api.reflection.findings.dialogue import find_dialogue
from apps.memory_api.reflection.findings.errors import find_crash, find_failures
from apps.memory_api.reflection.findings.loops import find_repeats, find_streaks
from apps.memory_api.reflection.findings.origins import find_hops, find_origin
from apps.memory_api.reflection.findings.refusals import find_refusals, find_unconfirmed
from apps.memory_api.reflection.findings.retries import find_retries
from apps.memory_api.reflection.findings.schemas import Attempt, Findings
from apps.memory_api.reflection.findings.timing import find_slow
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.quotes import cut, first_sentence
from apps.memory_api.traces.schemas import EventType, OutcomeType
from apps.memory_api.traces.steps import Run, read

_PATH = 8
_THANKS = re.compile(
    r"\W*(?:こちらこそ|ありがとう|とんでもな|you(?:'|’)re welcome|thank)", re.IGNORECASE
)
_ASKING = ("?", "？", "か。", "か？")


def find(
    context: ReflectionContext,
    *,
    attempts: Sequence[Attempt] = (),
    ground_truth: Any = None,
    test_report: str | None = None,
) -> Findings:
    """`attempts` are earlier runs of the same task, oldest first. `ground_truth` may be the
    expected answer, or a mapping with `answer`, `actions` (name, kwargs), `outputs`, or ratings by
    criterion; other shapes are ignored."""
    run = read(context.events, context.task_description, context.task_goal)
    won = context.outcome is OutcomeType.SUCCESS
    last = run.steps[-1] if run.steps else None
    writes = [s for s in run.steps if s.writes and not s.failure and s.verdict is None]
    first, write = (writes[0], writes[-1]) if writes else (None, None)
    return Findings(
        language=run.language,
        task=run.task,
        calls=len(run.steps),
        failed_calls=sum(1 for s in run.steps if s.failure),
        path=_path(run),
        shown_calls=tuple(s.call for s in run.steps[:5]),
        last_call=last.call if last else None,
        last_call_event=last.event if last else None,
        last_event=run.ids[-1] if run.ids else None,
        last_message=last.failure if last else "",
        last_said=_closing(run),
        last_said_event=run.ids[run.said[-1]] if run.said else None,
        first_write=first.call if first else None,
        first_write_event=first.event if first else None,
        writes=len(writes),
        last_write=write.call if write else None,
        last_write_event=write.event if write else None,
        said_anything=bool(run.said),
        open_end=_open_end(run),
        failures=find_failures(run),
        repeats=find_repeats(run),
        streaks=find_streaks(run),
        retries=find_retries(run),
        refusals=find_refusals(run),
        unconfirmed=() if won else find_unconfirmed(run),
        answer=find_answer(run, ground_truth),
        departures=() if won else find_departures(run, ground_truth),
        untold=() if won else find_untold(run, ground_truth),
        assertions=find_assertions(test_report),
        crash=find_crash(run),
        slow=find_slow(run),
        contrast=find_contrast(run, context.outcome, attempts),
        again=find_again(run, context.outcome, attempts),
        origin=find_origin(run),
        hops=find_hops(run),
        dialogue=find_dialogue(run, ground_truth),
        told_before=cut(run.text(run.lessons[-1]), 120) if run.lessons else None,
        earlier_failures=sum(
            1 for a in attempts if a.outcome not in (OutcomeType.SUCCESS, OutcomeType.PARTIAL)
        ),
        earlier_successes=sum(1 for a in attempts if a.outcome is OutcomeType.SUCCESS),
        tools=tuple(dict.fromkeys(s.tool for s in run.steps if s.tool)),
    )


def _path(run: Run) -> tuple[tuple[str, int], ...]:
    """Tools in order, equal neighbours counted; at most eight stretches."""
    path: list[tuple[str, int]] = []
    for step in run.steps:
        if path and path[-1][0] == step.tool:
            path[-1] = (step.tool, path[-1][1] + 1)
        elif len(path) < _PATH:
            path.append((step.tool, 1))
        else:
            break
    return tuple((tool, n) for tool, n in path if tool)


def _open_end(run: Run) -> bool:
    """The run breaks off at a call or its response: nothing was said or answered after it."""
    if not run.steps:
        return False
    last = run.steps[-1]
    if last.verdict is not None or (run.said and run.said[-1] > last.at):
        return False
    return run.events[-1].event_type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)


def _closing(run: Run) -> str:
    """The last message of the run that is more than a good-bye."""
    for at in reversed(run.said[-4:]):
        text = run.text(at)
        line = first_sentence(text, 150)
        if len(text.strip()) > 40 and not line.endswith(_ASKING) and not _THANKS.match(line):
            return line
    return ""
