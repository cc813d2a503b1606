"""What a ground truth expects, compared with what the trace contains: calls, answer, outputs; and
the ratings in it.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar, cast

from memory_api.trace_analysis.answer_comparison import (
    MAX_ANSWER_LENGTH,
    AnswerComparison,
    compare_answers,
)
from memory_api.trace_analysis.arguments import (
    ArgumentChange,
    Arguments,
    as_items,
    as_mapping,
    diff_arguments,
    flatten_arguments,
    format_call,
    parse_arguments,
    parse_mapping,
)
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.traces.expected_results import declared_match, expected_answers

_MAX_CLASSIFIED_CALLS = 300
"""Calls that are compared with similar expected ones. Calls after them count as extra."""
_MAX_CANDIDATES = 50
_ARGUMENT_FIELDS = ("kwargs", "arguments", "args")


@dataclass(frozen=True)
class ExpectedAction:
    """An expected call. `arguments` are as stated; None if the ground truth does not state any."""

    tool: str
    arguments: Any = None

    @cached_property
    def flat_arguments(self) -> Arguments:
        if isinstance(self.arguments, str):
            return parse_arguments(self.arguments, self.tool)
        return flatten_arguments(self.arguments)

    @property
    def summary(self) -> str:
        return format_call(self.tool, "", self.flat_arguments, 70)


@dataclass(frozen=True, slots=True)
class ActionDeviation:
    """A difference between the calls and the expected calls.

    `kind`: `changed` (expected tool, other arguments), `extra` or `missing`. `writes`: whether the
    tool can change anything, None if the trace does not state it. `is_similar`: the arguments
    differ only in case, spaces, the order of a list or the form of a value, or were not stated.
    `is_required`: the client declared `match: calls`.
    """

    kind: str
    event_id: str | None
    tool: str
    call: str
    changes: tuple[ArgumentChange, ...] = ()
    writes: bool | None = None
    is_similar: bool = False
    arguments: Arguments = field(default_factory=dict[str, str])
    is_required: bool = False

    @property
    def is_fault(self) -> bool:
        """Whether it shows that the run did something else than expected."""
        return (self.is_required or self.writes is True) and not self.is_similar


@dataclass(frozen=True, slots=True)
class CallComparison:
    """The calls that did not fail, compared with the expected ones; both without calls of tools
    that only read. Deviations: of calls in their order, then the missing calls. `failed_calls` are
    not compared; they may have changed something before they failed. `made_reads`: the list is not
    empty, and all its calls of tools that only read were made.
    """

    expected_count: int
    deviations: tuple[ActionDeviation, ...]
    failed_calls: tuple[ToolCall, ...] = ()
    made_reads: bool = False

    @property
    def made_count(self) -> int:
        """The number of expected calls that were made with exactly these arguments."""
        return self.expected_count - sum(d.kind != "extra" for d in self.deviations)


def expected_actions(ground_truth: Any) -> list[ExpectedAction] | None:
    """`actions: [{name, kwargs|arguments|args}]` of a ground truth. None if it has no list of
    actions, or one with an item that has no name.
    """
    given = as_mapping(ground_truth)
    if not isinstance(given.get("actions"), list):
        return None
    actions: list[ExpectedAction] = []
    for item in as_items(given["actions"]):
        action = {"name": item} if isinstance(item, str) else as_mapping(item)
        name = action.get("name")
        if not isinstance(name, str):
            return None
        field = next((field for field in _ARGUMENT_FIELDS if field in action), None)
        actions.append(ExpectedAction(name, action[field] if field else None))
    return actions


def compare_calls(trace: ParsedTrace, ground_truth: Any) -> CallComparison | None:
    """Compares all calls as multisets of (tool, arguments); the order does not count. None if the
    ground truth has no list of actions. By `match: calls`, other calls than the expected ones are
    not compared, and an action without arguments is met by any call of its tool.
    """
    expected, calls = expected_actions(ground_truth), trace.calls
    if expected is None:
        return None
    is_required = declared_match(ground_truth) == "calls"
    writes = {tool.name: tool.writes for tool in trace.tools}
    made_reads = False
    if not is_required:
        reads = [action for action in expected if writes.get(action.tool) is False]
        made_reads = bool(expected) and not _match_exactly(reads, _successful(calls))[0]
        expected = [action for action in expected if writes.get(action.tool) is not False]
        calls = [call for call in calls if call.writes is not False]
    open_actions, unmatched = _match_exactly(expected, _successful(calls))
    if is_required:
        open_actions, unmatched = _match_tools(open_actions, unmatched)
    by_tool = _by_tool(open_actions)
    compared = [
        _classify_deviation(call, by_tool if number < _MAX_CLASSIFIED_CALLS else {})
        for number, call in enumerate(unmatched)
    ]
    missing = [
        ActionDeviation(
            *("missing", None, action.tool, action.summary, (), writes.get(action.tool)),
            arguments=action.flat_arguments,
        )
        for action in _remaining(open_actions, by_tool)
    ]
    if not is_required:
        failed = tuple(call for call in calls if call.failure_message)
        return CallComparison(len(expected), (*compared, *missing), failed, made_reads)
    found = [deviation for deviation in compared if deviation.kind != "extra"]
    required = tuple(replace(deviation, is_required=True) for deviation in (*found, *missing))
    return CallComparison(len(expected), required)


def _match_tools(
    actions: Sequence[ExpectedAction], calls: Sequence[ToolCall]
) -> tuple[list[ExpectedAction], list[ToolCall]]:
    """Without the actions that state no arguments, and the first calls of their tools."""
    by_tool = _by_tool(calls)
    met: set[int] = set()
    for action in actions:
        if action.arguments is None and by_tool[action.tool]:
            met |= {id(action), id(by_tool[action.tool].popleft())}
    return [a for a in actions if id(a) not in met], [c for c in calls if id(c) not in met]


_ActionOrCall = TypeVar("_ActionOrCall", ExpectedAction, ToolCall)


def _by_tool(items: Sequence[_ActionOrCall]) -> defaultdict[str, deque[_ActionOrCall]]:
    """Actions or calls by their tool, in their order."""
    found: defaultdict[str, deque[_ActionOrCall]] = defaultdict(deque)
    for item in items:
        found[item.tool].append(item)
    return found


def _remaining(
    actions: Sequence[ExpectedAction], by_tool: Mapping[str, deque[ExpectedAction]]
) -> list[ExpectedAction]:
    """Those of the actions that are in `by_tool`, in their order."""
    kept = {id(action) for actions_of_tool in by_tool.values() for action in actions_of_tool}
    return [action for action in actions if id(action) in kept]


def _successful(calls: Sequence[ToolCall]) -> list[ToolCall]:
    return [call for call in calls if not call.failure_message]


def _match_exactly(
    expected: Sequence[ExpectedAction], calls: Sequence[ToolCall]
) -> tuple[list[ExpectedAction], list[ToolCall]]:
    """The expected actions and the calls that have no equal counterpart."""
    open_actions: defaultdict[tuple[str, str], list[ExpectedAction]] = defaultdict(list)
    for action in expected:
        open_actions[action.tool, _exact_key(action.arguments)].append(action)
    unmatched: list[ToolCall] = []
    for call in calls:
        equal = open_actions.get((call.tool, _exact_key(_stated_arguments(call))))
        if equal:
            equal.pop()
        else:
            unmatched.append(call)
    unfulfilled = {id(action) for actions in open_actions.values() for action in actions}
    return [action for action in expected if id(action) in unfulfilled], unmatched


def _stated_arguments(call: ToolCall) -> Any:
    mapping = parse_mapping(call.content)
    if mapping is not None:
        return mapping
    return call.arguments.get("", call.arguments)


def _exact_key(arguments: Any) -> str:
    """Equal for equal arguments. The order of the fields of an object and the spelling of a number
    (5, 5.0) do not count.
    """
    if isinstance(arguments, str):
        mapping = parse_mapping(arguments)
        arguments = arguments.strip() if mapping is None else mapping
    if arguments is None:
        return ""
    return json.dumps(_canonical(arguments), sort_keys=True, default=str)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _classify_deviation(
    call: ToolCall, open_actions: Mapping[str, deque[ExpectedAction]]
) -> ActionDeviation:
    """`changed` if an action of the same tool is open (removes the closest one from
    `open_actions`, by their tools), else `extra`.
    """
    extra = ActionDeviation(
        "extra", call.event_id, call.tool, call.summary, (), call.writes, False, call.arguments
    )
    options = open_actions.get(call.tool, ())
    compared = [(_changes(call, action), action) for action in islice(options, _MAX_CANDIDATES)]
    if not compared:
        return extra
    place = min(range(len(compared)), key=lambda place: len(compared[place][0]))
    changes, nearest = compared[place]
    if len(changes) > max(3, len(nearest.flat_arguments)):
        return extra
    del open_actions[call.tool][place]
    return ActionDeviation(
        *("changed", call.event_id, call.tool, call.summary, changes[:6], call.writes),
        is_similar=not changes,
        arguments=call.arguments,
    )


def _changes(call: ToolCall, action: ExpectedAction) -> tuple[ArgumentChange, ...]:
    """What differs in meaning. Nothing if the ground truth states no arguments."""
    if action.arguments is None:
        return ()
    return diff_arguments(call.arguments, action.flat_arguments)


_ANSWER_TOOL = re.compile(
    r"^(?:finish|answer|final_?answer|submit|done|complete|respond)$", re.IGNORECASE
)
_MAX_EXPECTED_OUTPUTS = 10
_MAX_MESSAGE_CHARACTERS = 20_000


def find_answer(trace: ParsedTrace) -> tuple[int, str] | None:
    """Position and text of the run's answer: the argument of the last call of a tool for answers,
    else the last message.
    """
    for call in reversed(trace.calls):
        if _ANSWER_TOOL.match(call.tool) and call.arguments:
            arguments = call.arguments
            return call.position, arguments.get("") or next(iter(arguments.values()), "")
    position = trace.reply_positions[-1] if trace.reply_positions else None
    return None if position is None else (position, trace.content_at(position))


def compare_answer(
    trace: ParsedTrace, answer: str | None, ground_truth: Any
) -> AnswerComparison | None:
    """Compares the run's answer with the expected one, by the `match` that the ground truth
    declares; None without an expected or a given answer. The answer is the stated one, else that
    of `find_answer`.
    """
    expected, found = expected_answers(ground_truth), find_answer(trace)
    given = answer or (found[1] if found else None)
    if not expected or given is None:
        return None
    match = declared_match(ground_truth)
    return compare_answers(given, expected, None if match == "calls" else match)


def expected_outputs(ground_truth: Any) -> list[str]:
    """Texts that the agent must tell the user."""
    return [
        str(output)
        for output in as_items(as_mapping(ground_truth).get("outputs"))[:_MAX_EXPECTED_OUTPUTS]
    ]


def states_answer(ground_truth: Any) -> bool:
    """Whether a ground truth states what the run should have done or answered. Ratings and counts,
    such as `{"satisfaction": 4}`, do not.
    """
    if not isinstance(ground_truth, dict):
        return True
    return (
        expected_actions(ground_truth) is not None
        or bool(expected_answers(ground_truth))
        or bool(expected_outputs(ground_truth))
    )


def missing_outputs(trace: ParsedTrace, ground_truth: Any) -> list[str]:
    """Expected outputs that no message contains."""
    texts = [
        trace.content_at(position)[:_MAX_MESSAGE_CHARACTERS].casefold()
        for position in trace.reply_positions
    ]
    texts_without_commas = [text.replace(",", "") for text in texts]
    outputs = [(output, output.casefold()) for output in expected_outputs(ground_truth)]
    return [
        output
        for output, folded in outputs
        if not any(folded in text for text in (*texts_without_commas, *texts))
    ]


def comparison_size(ground_truth: Any, call_count: int, text_size: int) -> int:
    """About how many characters a comparison with a ground truth reads: those of the ground truth,
    those of the answer for each accepted answer, and those of similar actions for each call.
    `text_size` is that of the texts of the trace.
    """
    size = len(ground_truth) if isinstance(ground_truth, str) else len(str(ground_truth))
    answer_count = len(expected_answers(ground_truth))
    action_count = len(as_items(as_mapping(ground_truth).get("actions")))
    size_of_similar = size * min(_MAX_CANDIDATES, action_count) // max(1, action_count)
    return (
        size
        + (answer_count - 1) * min(text_size, MAX_ANSWER_LENGTH) * (answer_count > 1)
        + min(call_count, _MAX_CLASSIFIED_CALLS) * size_of_similar
    )


RATING_FIELDS = ("satisfaction", "helpfulness", "rating", "stars", "csat")
MAX_RATING = 5
"""The best rating in `RATING_FIELDS`; 1 is the worst."""


def find_ratings(source: Mapping[str, Any]) -> dict[str, float]:
    """The ratings from 1 to `MAX_RATING` under the documented names."""
    numbers = {name: number_of(source.get(name)) for name in RATING_FIELDS}
    return {
        name: number
        for name, number in numbers.items()
        if number is not None and 1 <= number <= MAX_RATING
    }


def number_of(value: Any) -> float | None:
    """The value if it is a number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)
