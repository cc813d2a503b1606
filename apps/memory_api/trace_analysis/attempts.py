"""The comparison of the attempts at one task: what successful ones did and failed ones did not.

All attempts are compared, never one with one other, and each difference has its counts, so that a
reader sees how many attempts support it. Partial attempts, and attempts that an error ended, are
not compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from typing import Any

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.arguments import Arguments, diff_arguments
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.trace_analysis.ground_truth import expected_actions
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, parse_trace
from memory_api.traces.schemas import Event, OutcomeType
from memory_api.traces.tools import ToolDefinition

MAX_DIFFERENCES = 12
_MAX_ARGUMENTS = 12
_MAX_ORDERS = 3
_MAX_ORDERED_TOOLS = 20
_MAX_CANDIDATES = 50
"""Calls of the other side of which the closest one is found."""
_FAILED = (OutcomeType.FAILURE, OutcomeType.TIMEOUT)

CallKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An earlier attempt at the same task."""

    outcome: OutcomeType
    events: Sequence[Event]
    tools: Sequence[ToolDefinition] = ()


@dataclass(frozen=True)
class ComparedRun:
    """An attempt with its name: a1 for the oldest one; "" for this run."""

    label: str
    outcome: OutcomeType
    run: ParsedTrace

    def event_id(self, call: ToolCall) -> str:
        return f"{self.label}.{call.event_id}" if self.label else call.event_id

    def calls(self) -> dict[CallKey, ToolCall]:
        """The distinct calls of the run that did not fail, the first of each."""
        calls: dict[CallKey, ToolCall] = {}
        for call in self.run.calls:
            if call.tool and not call.failure_message:
                calls.setdefault(_key(call), call)
        return calls

    @cached_property
    def tools(self) -> Set[str]:
        return {call.tool for call in self.run.calls}


def compare_attempts(
    trace: ParsedTrace, outcome: OutcomeType, attempts: Sequence[Attempt], ground_truth: Any = None
) -> Iterator[Fact]:
    """The differences of this run and earlier attempts (oldest first), at most 12; without both
    outcomes, only whether earlier attempts made the same calls. Calls that change something, and
    calls of tools that the ground truth names, come first; calls that only read or return nothing
    come last.
    """
    if not attempts:
        return
    runs = [
        ComparedRun(f"a{number}", a.outcome, parse_trace(a.events, tools=a.tools))
        for number, a in enumerate(attempts, 1)
    ]
    this = ComparedRun("", outcome, trace)
    yield from _same_calls(runs, this)
    runs.append(this)
    succeeded = [r for r in runs if r.outcome is OutcomeType.SUCCESS]
    failed = [r for r in runs if r.outcome in _FAILED]
    if outcome is OutcomeType.PARTIAL or not succeeded or not failed:
        return
    sides = _Sides(succeeded, failed, this)
    expected = {action.tool for action in expected_actions(ground_truth) or ()}
    differences = [*sides.calls(), *sides.tools(), *sides.orders()]
    differences.sort(key=lambda item: _rank(item.calls, expected))
    if differences:
        yield sides.fact(
            "compared",
            successful_labels=[r.label for r in succeeded],
            failed_labels=[r.label for r in failed],
            crashed_labels=[r.label for r in runs if r.outcome is OutcomeType.ERROR],
            more=max(0, len(differences) - MAX_DIFFERENCES),
        )
    yield from (difference.fact for difference in differences[:MAX_DIFFERENCES])


def _same_calls(runs: Sequence[ComparedRun], this: ComparedRun) -> Iterator[Fact]:
    """How many earlier attempts with the outcome of this one made exactly the same calls."""
    keys = [_key(call) for call in this.run.calls]
    same = [r for r in runs if r.outcome is this.outcome and list(map(_key, r.run.calls)) == keys]
    if keys and same:
        values = {"aspect": "same_calls", "count": len(same), "labels": [r.label for r in same]}
        ids = (this.run.calls[0].event_id,)
        yield Fact(FactKind.DIFFERENCE, ids, values | {"outcome": this.outcome.value})


@dataclass(frozen=True)
class _Difference:
    fact: Fact
    calls: Sequence[ToolCall]


@dataclass(frozen=True)
class _Sides:
    """The successful and the failed attempts; `this` is one of them."""

    succeeded: Sequence[ComparedRun]
    failed: Sequence[ComparedRun]
    this: ComparedRun

    def fact(self, aspect: str, *calls: tuple[ComparedRun, ToolCall], **values: Any) -> Fact:
        """`calls` show the difference; those of this run give its event IDs."""
        ids = tuple(c.event_id for run, c in calls if run is self.this)
        counts = {"successful": len(self.succeeded), "failed": len(self.failed)}
        examples = [run.event_id(call) for run, call in calls]
        return Fact(
            FactKind.DIFFERENCE, ids, {"aspect": aspect, **counts, "examples": examples, **values}
        )

    def tools(self) -> Iterator[_Difference]:
        """The tools that all attempts of one side called, and none of the other."""
        tools = dict.fromkeys(
            c.tool for r in (*self.succeeded, *self.failed) for c in r.run.calls if c.tool
        )
        for tool in tools:
            users = sum(tool in run.tools for run in self.succeeded)
            other_users = sum(tool in run.tools for run in self.failed)
            if (users, other_users) not in ((len(self.succeeded), 0), (0, len(self.failed))):
                continue
            run = (self.succeeded if users else self.failed)[-1]
            calls = [c for c in run.run.calls if c.tool == tool]
            side = "successful" if users else "failed"
            fact = self.fact(
                "tool",
                (run, calls[0]),
                side=side,
                tool=tool,
                call=_call_text(calls[0]),
                writes=any(call.writes for call in calls),
            )
            yield _Difference(fact, calls)

    def calls(self) -> Iterator[_Difference]:
        """The calls that all attempts of one side made and none of the other: those of a tool that
        both sides called, in pairs with the arguments that differ; then the others.
        """
        by_success = _exclusive(self.succeeded, self.failed)
        by_failure = _exclusive(self.failed, self.succeeded)
        keys_by_tool: defaultdict[str, dict[CallKey, None]] = defaultdict(dict)
        for key in by_failure:
            keys_by_tool[key[0]][key] = None
        for key, (run, call) in list(by_success.items()):
            candidates = list(islice(keys_by_tool[call.tool], _MAX_CANDIDATES))
            if not candidates:
                continue
            other_key = min(
                candidates, key=lambda k: _distance(call.arguments, by_failure[k][1].arguments)
            )
            del keys_by_tool[call.tool][other_key]
            other_run, other = by_failure.pop(other_key)
            by_success.pop(key)
            fact = self.fact(
                "argument",
                (run, call),
                (other_run, other),
                tool=call.tool,
                changes=[
                    {"name": change.name, "successful": change.before, "failed": change.after}
                    for change in diff_arguments(call.arguments, other.arguments, 120)
                ][:_MAX_ARGUMENTS],
            )
            yield _Difference(fact, (call, other))
        for side, found, others in (
            ("successful", by_success, self.failed),
            ("failed", by_failure, self.succeeded),
        ):
            for run, call in found.values():
                if any(call.tool in other.tools for other in others):
                    values = {"side": side, "tool": call.tool, "call": _call_text(call)}
                    yield _Difference(self.fact("call", (run, call), **values), (call,))

    def orders(self) -> Iterator[_Difference]:
        """Two tools that all successful attempts called first in one order, and all failed ones in
        the other.
        """
        first_calls = [_first_calls(run) for run in (*self.succeeded, *self.failed)]
        common = [t for t in first_calls[0] if all(t in calls for calls in first_calls[1:])]
        good, bad = first_calls[: len(self.succeeded)], first_calls[len(self.succeeded) :]
        found = 0
        for first, second in combinations(common[:_MAX_ORDERED_TOOLS], 2):
            is_first = [calls[first].position < calls[second].position for calls in good]
            is_reversed = [calls[first].position > calls[second].position for calls in bad]
            if all(is_first) and all(is_reversed) and found < _MAX_ORDERS:
                found += 1
                run, calls = self.succeeded[-1], good[-1]
                pair = (calls[first], calls[second])
                fact = self.fact(
                    "order", *((run, call) for call in pair), first=first, second=second
                )
                yield _Difference(fact, pair)


def _first_calls(run: ComparedRun) -> dict[str, ToolCall]:
    """Tool → its first call that did not fail, in order."""
    calls: dict[str, ToolCall] = {}
    for call in run.calls().values():
        calls.setdefault(call.tool, call)
    return calls


def _rank(calls: Sequence[ToolCall], expected: Collection[str]) -> int:
    """0 for calls that change something or that the ground truth names, 1 if their effect is not
    known, 2 if they only read, 3 if they return nothing.
    """
    if any(call.writes or call.tool in expected for call in calls):
        return 0
    if all(call.has_response and not call.response.strip() for call in calls):
        return 3
    return 1 if any(call.may_modify for call in calls) else 2


def _exclusive(
    side: Sequence[ComparedRun], others: Sequence[ComparedRun]
) -> dict[CallKey, tuple[ComparedRun, ToolCall]]:
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


def _call_text(call: ToolCall) -> str:
    if "" in call.arguments:
        return excerpt(call.arguments[""], 240)
    parts = [f"{name}={excerpt(value, 120)}" for name, value in call.arguments.items()]
    return excerpt(", ".join(parts), 480)
