"""What the attempts at one task have in common and where they differ, as lines for a prompt. Pure.

All successful and all failed attempts are compared, never one with one other. A difference is
stated as counts, so that a reader sees how many attempts support it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory_api.text.differences import excerpt_differences
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.arguments import Arguments, is_calculation
from memory_api.trace_analysis.context import Attempt
from memory_api.trace_analysis.ground_truth import expected_actions
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, parse_trace
from memory_api.traces.schemas import OutcomeType

_MAX_DIFFERENCES = 12
_MAX_ARGUMENTS = 12
_FAILED = (OutcomeType.FAILURE, OutcomeType.TIMEOUT)
MIN_ATTEMPTS_FOR_A_RULE = 2
"""With fewer attempts on a side, a difference is stated as counts only."""

CallKey = tuple[str, str]


@dataclass(frozen=True)
class LabeledRun:
    """An attempt with its name in the prompt: a1 for the oldest one; `this run`."""

    label: str
    outcome: OutcomeType
    run: ParsedTrace
    prefix: str = ""

    def event_id(self, call: ToolCall) -> str:
        return f"{self.prefix}{call.event_id}"

    def calls(self) -> dict[CallKey, ToolCall]:
        """The distinct calls of the run that did not fail, the first of each."""
        calls: dict[CallKey, ToolCall] = {}
        for call in self.run.calls:
            if call.tool and not call.failure_message:
                calls.setdefault(_key(call), call)
        return calls


def labeled_runs(attempts: Sequence[Attempt], this: Attempt) -> list[LabeledRun]:
    """The attempts (oldest first) and this run, parsed."""
    labels = [f"a{number}" for number in range(1, len(attempts) + 1)]
    runs = [
        LabeledRun(label, a.outcome, parse_trace(a.events, tools=a.tools), f"{label}.")
        for label, a in zip(labels, attempts, strict=True)
    ]
    return [*runs, LabeledRun("this run", this.outcome, parse_trace(this.events, tools=this.tools))]


def comparison_lines(
    attempts: Sequence[Attempt], this: Attempt, ground_truth: Any = None
) -> list[str]:
    """The differences of successful and failed attempts; none without both. Calls that change
    something, and calls of tools that the ground truth names, come first; calls that only read,
    compute or return nothing come last. Partial attempts, and attempts that an error ended, are not
    compared. The lines quote calls of the runs, so a prompt has to fence them.
    """
    outcomes = {attempt.outcome for attempt in (*attempts, this)}
    if OutcomeType.SUCCESS not in outcomes or outcomes.isdisjoint(_FAILED):
        return []
    runs = labeled_runs(attempts, this)
    succeeded = [r for r in runs if r.outcome is OutcomeType.SUCCESS]
    failed = [r for r in runs if r.outcome in _FAILED]
    crashed = [r.label for r in runs if r.outcome is OutcomeType.ERROR]
    left_out = f" Not compared: {', '.join(crashed)}, ended by an error." if crashed else ""
    expected = {action.tool for action in expected_actions(ground_truth) or ()}
    pairs, others = _call_differences(succeeded, failed)
    differences = [
        *pairs,
        *_tool_differences(succeeded, failed),
        *others,
        *_missing_calls(succeeded, failed, runs[-1]),
    ]
    differences.sort(key=lambda difference: _rank(difference.calls, expected))
    more = len(differences) - _MAX_DIFFERENCES
    return [
        f"Compared: {_count(succeeded, 'successful')} and {_count(failed, 'failed')}.{left_out}",
        *_answer_lines(succeeded, failed),
        *(difference.line for difference in differences[:_MAX_DIFFERENCES]),
        *([f"{more} more differences are not listed."] if more > 0 else []),
    ]


@dataclass(frozen=True)
class _Difference:
    """A line of the comparison, and the calls that it is about."""

    line: str
    calls: Sequence[ToolCall] = ()


def _rank(calls: Sequence[ToolCall], expected: Collection[str]) -> int:
    """0 for calls that change something or that the ground truth names, 1 if their effect is not
    known, 2 if they only read or compute, 3 if they return nothing.
    """
    if any(call.writes or call.tool in expected for call in calls):
        return 0
    if all(map(_returned_nothing, calls)):
        return 3
    return 1 if any(call.may_modify and not is_calculation(call.arguments) for call in calls) else 2


def _returned_nothing(call: ToolCall) -> bool:
    return call.has_response and not call.response.strip()


def _count(runs: Sequence[LabeledRun], adjective: str) -> str:
    noun = "attempt" if len(runs) == 1 else "attempts"
    return f"{len(runs)} {adjective} {noun} ({', '.join(r.label for r in runs)})"


def _tool_differences(
    succeeded: Sequence[LabeledRun], failed: Sequence[LabeledRun]
) -> Iterator[_Difference]:
    """The tools that all attempts of one side called, and none of the other, with the first call of
    the last attempt.
    """
    tools = dict.fromkeys(c.tool for r in (*succeeded, *failed) for c in r.run.calls if c.tool)
    for tool in tools:
        users, other_users = (_users(side, tool) for side in (succeeded, failed))
        if (users, other_users) not in ((len(succeeded), 0), (0, len(failed))):
            continue
        run = (succeeded if users else failed)[-1]
        first_call = next((c for c in run.calls().values() if c.tool == tool), None)
        first = f" {_call_text(first_call)} ({run.event_id(first_call)})." if first_call else ""
        if min(len(succeeded), len(failed)) < MIN_ATTEMPTS_FOR_A_RULE:
            line = (
                f"`{tool}` was called in {users} of {len(succeeded)} successful and in "
                f"{other_users} of {len(failed)} failed attempts.{first}"
            )
        else:
            name, other = ("successful", "failed") if users else ("failed", "successful")
            line = (
                f"`{tool}` was called in all {users or other_users} {name} attempts and in no "
                f"{other} one.{first}"
            )
        yield _Difference(line, [c for c in run.run.calls if c.tool == tool])


def _users(runs: Sequence[LabeledRun], tool: str) -> int:
    return sum(1 for run in runs if any(call.tool == tool for call in run.run.calls))


def _call_differences(
    succeeded: Sequence[LabeledRun], failed: Sequence[LabeledRun]
) -> tuple[list[_Difference], list[_Difference]]:
    """The calls that all attempts of one side made and none of the other: those of a tool that both
    sides called, in pairs with the arguments that differ, and the others.
    """
    by_success, by_failure = _exclusive(succeeded, failed), _exclusive(failed, succeeded)
    paired: set[CallKey] = set()
    pairs: list[_Difference] = []
    for key, (run, call) in by_success.items():
        candidates = {
            k: item
            for k, item in by_failure.items()
            if item[1].tool == call.tool and k not in paired
        }
        if not candidates:
            continue
        other_key = min(
            candidates, key=lambda k: _distance(call.arguments, candidates[k][1].arguments)
        )
        other_run, other = candidates[other_key]
        paired |= {key, other_key}
        line = (
            f"`{call.tool}`: {_sides(succeeded, failed)} "
            f"{_differences(call.arguments, other.arguments)} "
            f"({run.event_id(call)} and {other_run.event_id(other)})."
        )
        pairs.append(_Difference(line, (call, other)))
    rest: list[_Difference] = []
    for side, calls in (("successful", by_success), ("failed", by_failure)):
        runs, others = (succeeded, failed) if side == "successful" else (failed, succeeded)
        tools = {call.tool for run in others for call in run.run.calls}
        other_side = "failed" if side == "successful" else "successful"
        for key, (run, call) in calls.items():
            if key not in paired and call.tool in tools:
                line = (
                    f"Made in {len(runs)} of {len(runs)} {side} and 0 of {len(others)} "
                    f"{other_side} attempts: {_call_text(call)} ({run.event_id(call)})."
                )
                rest.append(_Difference(line, (call,)))
    return pairs, rest


def _missing_calls(
    succeeded: Sequence[LabeledRun], failed: Sequence[LabeledRun], this: LabeledRun
) -> Iterator[_Difference]:
    """The calls of all successful attempts that this failed run lacks and another failed attempt
    made: attempts fail for different reasons.
    """
    if this not in failed:
        return
    known = set(_exclusive(succeeded, failed))
    for key, (run, call) in _exclusive(succeeded, [this]).items():
        if key not in known:
            line = (
                f"Not made in this run, but in {len(succeeded)} of {len(succeeded)} successful "
                f"attempts and in another failed one: {_call_text(call)} ({run.event_id(call)})."
            )
            yield _Difference(line, (call,))


def _sides(succeeded: Sequence[LabeledRun], failed: Sequence[LabeledRun]) -> str:
    def text(runs: Sequence[LabeledRun], adjective: str) -> str:
        return f"{len(runs)} of {len(runs)} {adjective}"

    return f"{text(succeeded, 'successful')} and {text(failed, 'failed')} attempts differ:"


def _exclusive(
    side: Sequence[LabeledRun], others: Sequence[LabeledRun]
) -> dict[CallKey, tuple[LabeledRun, ToolCall]]:
    """The calls that all runs of a side made and no other run did, in the last run of the side."""
    common = set(side[0].calls()).intersection(*(run.calls() for run in side[1:]))
    excluded = set[CallKey]().union(*(run.calls() for run in others))
    last = side[-1]
    return {key: (last, c) for key, c in last.calls().items() if key in common - excluded}


def _key(call: ToolCall) -> CallKey:
    tool, arguments = call.key
    return tool, " ".join(arguments.casefold().split())


def _distance(a: Arguments, b: Arguments) -> int:
    return sum(1 for name in {*a, *b} if a.get(name) != b.get(name))


def _differences(successful: Arguments, failed: Arguments) -> str:
    parts: list[str] = []
    for name in dict.fromkeys([*successful, *failed]):
        before, after = successful.get(name), failed.get(name)
        if before == after:
            continue
        if before is not None and after is not None:
            left, right = excerpt_differences(before, after, 120)
        else:
            left, right = (_value(value) for value in (before, after))
        label = f"{name}: " if name else ""
        parts.append(f"{label}successful {left or '(empty)'}, failed {right or '(empty)'}")
    more = len(parts) - _MAX_ARGUMENTS
    parts = parts[:_MAX_ARGUMENTS] + ([f"{more} more arguments"] if more > 0 else [])
    return "; ".join(parts)


def _value(value: str | None) -> str:
    return "not given" if value is None else excerpt(value, 120)


def _call_text(call: ToolCall) -> str:
    arguments = call.arguments
    if "" in arguments:
        return f"`{call.tool}` {excerpt(arguments[''], 240)}"
    parts = [f"{name}={excerpt(value, 120)}" for name, value in arguments.items()]
    return f"`{call.tool}`({excerpt(', '.join(parts), 480)})"


def _answer_lines(succeeded: Iterable[LabeledRun], failed: Iterable[LabeledRun]) -> Iterator[str]:
    """The answers that the environment judged, if they differ."""
    answers: Mapping[str, str] = {
        run.label: text
        for run in (*succeeded, *failed)
        if (text := _judged_answer(run.run)) is not None
    }
    if len(set(answers.values())) > 1:
        shown = "; ".join(f"{label}: {excerpt(text, 120)}" for label, text in answers.items())
        yield f"Final answers: {shown}."


def _judged_answer(run: ParsedTrace) -> str | None:
    for call in reversed(run.calls):
        if call.is_correct is not None:
            return call.arguments.get("", "") or call.content
    return None
