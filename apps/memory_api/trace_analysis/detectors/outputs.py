"""Detects slow calls, truncated outputs, the same text returned to different calls, and results
that no later event uses.
"""

from __future__ import annotations

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.trace_analysis.structure import (
    RepeatedResult,
    SlowestCall,
    TruncatedOutput,
    UnusedResult,
)
from memory_api.trace_analysis.values import FoldedText, names_in, numbers_in

_MIN_REPEATED_CHARACTERS = 200
_EDGE_CHARACTERS = 400
_MIN_USABLE_CHARACTERS, _MAX_USABLE_CHARACTERS = 40, 2_000
_MAX_CALLS, _MAX_VALUES = 200, 30
_MAX_LISTED = 3


def find_slowest_call(trace: ParsedTrace) -> SlowestCall | None:
    """The call that took longest, from measured durations or from timestamps. None if fewer than
    two calls have a duration.
    """
    timed = [
        (seconds, call)
        for call in trace.calls
        if (seconds := _call_duration(trace, call)) is not None
    ]
    total = sum(seconds for seconds, _ in timed)
    if len(timed) < 2 or total <= 0:
        return None
    seconds, call = max(timed, key=lambda x: x[0])
    return SlowestCall(call.event_id, call.summary, round(seconds, 3), round(seconds / total, 3))


def _call_duration(trace: ParsedTrace, call: ToolCall) -> float | None:
    if call.duration_seconds is not None or call.response_position is None:
        return call.duration_seconds
    start, end = (
        trace.events[call.position].timestamp,
        trace.events[call.response_position].timestamp,
    )
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()


def find_truncated_outputs(trace: ParsedTrace) -> tuple[TruncatedOutput, ...]:
    """At most three outputs whose first or last 400 characters say that they were truncated."""
    results: list[TruncatedOutput] = []
    for call in trace.calls[:_MAX_CALLS]:
        if call.response_position is None or not call.response:
            continue
        text = call.response
        edges = (
            text
            if len(text) < 2 * _EDGE_CHARACTERS
            else f"{text[:_EDGE_CHARACTERS]}\n{text[-_EDGE_CHARACTERS:]}"
        )
        match = trace.vocabulary.search("truncated", edges)
        if match:
            line = edges[edges.rfind("\n", 0, match.start()) + 1 : match.end() + 60].split("\n")[0]
            event_id = trace.event_ids[call.response_position]
            results.append(
                TruncatedOutput(call.event_id, event_id, call.summary, excerpt(line, 100))
            )
            if len(results) == _MAX_LISTED:
                break
    return tuple(results)


def find_repeated_results(trace: ParsedTrace) -> tuple[RepeatedResult, ...]:
    """The same response of at least 200 characters to different calls; at most three."""
    groups: dict[str, list[ToolCall]] = {}
    for call in trace.calls[:_MAX_CALLS]:
        if len(call.response) >= _MIN_REPEATED_CHARACTERS and not call.failure_message:
            groups.setdefault(call.response, []).append(call)
    repeated = [
        RepeatedResult(
            event_id=calls[1].event_id,
            event_ids=tuple(call.event_id for call in calls[:5]),
            calls=tuple(dict.fromkeys(call.summary for call in calls))[:_MAX_LISTED],
            count=len(calls),
        )
        for calls in groups.values()
        if len({call.key for call in calls}) > 1
    ]
    return tuple(sorted(repeated, key=lambda result: -result.count)[:_MAX_LISTED])


def find_unused_results(trace: ParsedTrace) -> tuple[UnusedResult, ...]:
    """Responses with at least two numbers or names, none of which any later event contains; at most
    three. The last call is left out if nothing follows it.
    """
    results: list[UnusedResult] = []
    for call in trace.calls[:_MAX_CALLS]:
        position = call.response_position
        if position is None or position + 1 >= len(trace.events) or call.failure_message:
            continue
        if len(call.response) < _MIN_USABLE_CHARACTERS:
            continue
        text = call.response[:_MAX_USABLE_CHARACTERS]
        values = [*numbers_in(text), *names_in(text)]
        if 2 <= len(values) <= _MAX_VALUES and not _is_used(trace, position, values):
            results.append(UnusedResult(call.event_id, trace.event_ids[position], call.summary))
            if len(results) == _MAX_LISTED:
                break
    return tuple(results)


def _is_used(trace: ParsedTrace, position: int, values: list[str]) -> bool:
    """Whether a later event contains one of the values. Plain text is searched first: it is
    cheap, and a value that occurs as part of a word is no reason to say that it does not occur.
    """
    later = [event.content for event in trace.events[position + 1 :]]
    if any(value in text for text in later for value in values):
        return True
    folded = map(FoldedText, later)
    return any(text.contains(value) for text in folded for value in values)
