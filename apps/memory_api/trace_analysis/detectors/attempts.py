"""Compares an attempt with other attempts at the same task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memory_api.text.excerpts import excerpt, fold_for_comparison
from memory_api.trace_analysis.arguments import ArgumentChange, diff_arguments
from memory_api.trace_analysis.context import Attempt
from memory_api.trace_analysis.findings import AttemptContrast, RepeatedAttempt
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, parse_trace
from memory_api.trace_analysis.vocabulary import Vocabulary
from memory_api.traces.schemas import OutcomeType

_MAX_COMPARED_ATTEMPTS = 8
_MAX_LISTED = 3
_MAX_COMPARED_CALLS = 60


def contrast_attempts(
    trace: ParsedTrace, outcome: OutcomeType, attempts: Sequence[Attempt]
) -> AttemptContrast | None:
    """Compares with all attempts (oldest first) that had the opposite outcome. None if there are
    none or nothing differs.

    A call or a tool is only on one side if all attempts of that side have it and no attempt of the
    other side does.
    """
    if outcome is OutcomeType.PARTIAL or not trace.calls:
        return None
    is_success = outcome is OutcomeType.SUCCESS
    finished = [a for a in attempts if a.outcome is not OutcomeType.PARTIAL]
    others = [a for a in finished if (a.outcome is OutcomeType.SUCCESS) != is_success]
    peers = [a for a in finished if (a.outcome is OutcomeType.SUCCESS) == is_success]
    parsed = _parse_latest(others, trace.vocabulary)
    if not any(other.calls for other in parsed):
        return None
    this_side = [*(peer.calls for peer in _parse_latest(peers, trace.vocabulary)), trace.calls]
    other_side = [other.calls for other in parsed]
    only_in_this = _distinct_calls(_exclusive_calls(this_side, other_side))
    only_in_other = _distinct_calls(_exclusive_calls(other_side, this_side))
    latest_calls = next(calls for calls in reversed(other_side) if calls)
    tool, changed_call, changes = _diff_same_tool(only_in_this, only_in_other, is_success)
    answer = _other_answer(trace.calls, latest_calls)
    if not (only_in_this or only_in_other or answer):
        return None
    first_call = changed_call or (only_in_this[0] if only_in_this else None)
    failed_side, succeeded_side = (other_side, this_side) if is_success else (this_side, other_side)
    return AttemptContrast(
        this_succeeded=is_success,
        trace_id=others[-1].trace_id,
        event_id=first_call.event_id if first_call else None,
        calls_only_in_this=tuple(call.summary for call in _most_relevant(only_in_this)),
        calls_only_in_other=tuple(call.summary for call in _most_relevant(only_in_other)),
        tools_only_in_this=_tools_only_in(this_side, other_side),
        tools_only_in_other=_tools_only_in(other_side, this_side),
        compared_tool=tool,
        differing_arguments=changes,
        other_attempt_count=len(others),
        other_answer=answer,
        tool_without_quotes=_tool_without_quotes(only_in_this, only_in_other)
        if is_success
        else _tool_without_quotes(only_in_other, only_in_this),
        write_tool_only_in_failed=_write_tool_only_in_failed(succeeded_side, failed_side),
    )


def _parse_latest(attempts: Sequence[Attempt], vocabulary: Vocabulary) -> list[ParsedTrace]:
    return [
        parse_trace(attempt.events, tools=attempt.tools, vocabulary=vocabulary)
        for attempt in attempts[-_MAX_COMPARED_ATTEMPTS:]
    ]


def _exclusive_calls(
    side: Sequence[Sequence[ToolCall]], other_side: Sequence[Sequence[ToolCall]]
) -> list[ToolCall]:
    """The calls of the last attempt of `side` that all attempts of it made, and none of the other
    side.
    """
    with_calls = [calls for calls in side if calls]
    first, *others = [{_normalized_key(call) for call in calls} for calls in with_calls]
    common = first.intersection(*others)
    excluded = {_normalized_key(call) for calls in other_side for call in calls}
    return [c for c in with_calls[-1] if _normalized_key(c) in common - excluded]


def find_repeated_attempts(
    trace: ParsedTrace, outcome: OutcomeType, attempts: Sequence[Attempt]
) -> RepeatedAttempt | None:
    """Earlier attempts with exactly the same calls and the same outcome; None if there are none."""
    if not trace.calls:
        return None
    this_keys = [_normalized_key(call) for call in trace.calls]
    compared = [
        attempt for attempt in attempts[-_MAX_COMPARED_ATTEMPTS:] if attempt.outcome is outcome
    ]
    same = [
        attempt
        for attempt in compared
        if [
            _normalized_key(call)
            for call in parse_trace(
                attempt.events, tools=attempt.tools, vocabulary=trace.vocabulary
            ).calls
        ]
        == this_keys
    ]
    return RepeatedAttempt(len(same), same[-1].trace_id, trace.calls[0].summary) if same else None


def _normalized_key(call: ToolCall) -> tuple[str, str]:
    tool, arguments = call.key
    return tool, " ".join(arguments.casefold().split())


def _distinct_calls(calls: Iterable[ToolCall]) -> list[ToolCall]:
    calls_by_key: dict[tuple[str, str], ToolCall] = {}
    for call in calls:
        if call.arguments and not _is_internal(call) and call.is_correct is None:
            calls_by_key.setdefault(_normalized_key(call), call)
    return list(calls_by_key.values())


def _is_internal(call: ToolCall) -> bool:
    return call.tool.casefold() in {"think", "calculate", "note"}


def _most_relevant(calls: list[ToolCall]) -> list[ToolCall]:
    """At most `_MAX_LISTED` calls in their order; prefers successful calls, and among them those
    that are known to change something.
    """
    ranked = sorted(
        range(len(calls)),
        key=lambda index: (bool(calls[index].failure_message), not calls[index].writes, index),
    )[:_MAX_LISTED]
    return [calls[index] for index in sorted(ranked)]


def _tools_only_in(
    included: Sequence[Sequence[ToolCall]], excluded: Sequence[Sequence[ToolCall]]
) -> tuple[str, ...]:
    """The tools that all attempts of one side called, and none of the other side."""
    with_calls = [calls for calls in included if calls]
    first, *others = [{call.tool for call in calls} for calls in with_calls]
    common = first.intersection(*others)
    excluded_tools = {call.tool for calls in excluded for call in calls}
    return tuple(
        dict.fromkeys(
            call.tool
            for call in with_calls[-1]
            if call.tool
            and call.tool in common - excluded_tools
            and not _is_internal(call)
            and call.is_correct is None
        )
    )[:_MAX_LISTED]


def _other_answer(this_calls: list[ToolCall], other_calls: list[ToolCall]) -> str | None:
    this_answer = next(
        (
            call.arguments.get("", "")
            for call in reversed(this_calls)
            if call.is_correct is not None
        ),
        None,
    )
    other_answer = next(
        (
            call.arguments.get("", "")
            for call in reversed(other_calls)
            if call.is_correct is not None
        ),
        None,
    )
    if this_answer and other_answer and this_answer != other_answer:
        return excerpt(other_answer, 80)
    return None


def _tool_without_quotes(succeeded: list[ToolCall], failed: list[ToolCall]) -> str | None:
    """A tool to which the failed attempt passed the same words in quotation marks."""
    quoted = {
        fold_for_comparison(call.arguments[""])
        for call in failed
        if call.arguments.get("", "").strip()[:1] in tuple("\"'“「") and call.failure_message
    }
    return next(
        (
            call.tool
            for call in succeeded
            if call.arguments.get("")
            and fold_for_comparison(call.arguments[""]) in quoted
            and not call.failure_message
        ),
        None,
    )


def _write_tool_only_in_failed(
    succeeded: Sequence[Sequence[ToolCall]], failed: Sequence[Sequence[ToolCall]]
) -> str | None:
    """The first write tool that all failed attempts used successfully, and no successful attempt
    used.
    """
    used = {call.tool for calls in succeeded for call in calls}
    changed = [
        [call.tool for call in calls if call.writes and not call.failure_message]
        for calls in failed
        if calls
    ]
    if not changed:
        return None
    common = set(changed[0]).intersection(*changed[1:])
    return next((tool for tool in changed[-1] if tool in common - used), None)


def _diff_same_tool(
    only_in_this: list[ToolCall], only_in_other: list[ToolCall], is_success: bool
) -> tuple[str | None, ToolCall | None, tuple[ArgumentChange, ...]]:
    """The first tool that both sides called with different arguments, and the changes from the
    failed side to the successful one. Tools that change something come first; those that only read
    are left out.
    """
    candidates = sorted(
        (call for call in only_in_this if _is_comparable(call)), key=lambda call: not call.writes
    )
    for call in candidates[:_MAX_COMPARED_CALLS]:
        same_tool = [
            other
            for other in only_in_other[:_MAX_COMPARED_CALLS]
            if other.tool == call.tool and _is_comparable(other)
        ]
        if not same_tool:
            continue
        other = min(
            same_tool, key=lambda other: len(diff_arguments(other.arguments, call.arguments))
        )
        pair = (
            (other.arguments, call.arguments) if is_success else (call.arguments, other.arguments)
        )
        changes = diff_arguments(*pair)
        if changes and len(changes) <= max(3, len(call.arguments) // 2):
            return call.tool, call, changes[:4]
    return None, None, ()


def _is_comparable(call: ToolCall) -> bool:
    return (
        call.writes is not False
        and not call.failure_message
        and call.is_correct is None
        and "" not in call.arguments
    )
