"""The events of a trace as the page shows them: a result below its call, with time and tokens, and
what only this attempt did.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from memory_api.traces.schemas import Trace, TraceEvent, TraceWithEvents

RESULTS = {"tool_response", "error_event"}
CALLS = {"tool_call", *RESULTS}


@dataclass(frozen=True)
class EventLine:
    event: TraceEvent
    is_result: bool
    """Of the call above."""
    elapsed: timedelta | None
    """Since the event before; None without both times."""
    tokens: int | None
    """Input and output, as the client sent them in `metadata`."""
    is_only_here: bool
    """No other attempt has an event like it."""


@dataclass(frozen=True)
class AttemptDifference:
    """How a trace differs from another attempt at its task: of each, the first call, or else the
    first result, that the other one lacks.
    """

    other: TraceWithEvents
    here: TraceEvent | None
    there: TraceEvent | None


def compare_attempts(
    trace: TraceWithEvents, attempts: Sequence[TraceWithEvents]
) -> AttemptDifference | None:
    """The difference to the newest of the other attempts, one that ended otherwise if there is
    one. None without another attempt, and if the events of one are not all loaded.
    """
    others = [each for each in reversed(attempts) if each.id != trace.id]
    otherwise = [each for each in others if _succeeded(each) is not _succeeded(trace)]
    other = next(iter(otherwise or others), None)
    if other is None or other.next_cursor or trace.next_cursor:
        return None
    pair = (trace, other)
    return AttemptDifference(other, _first_only_here(trace, pair), _first_only_here(other, pair))


def _first_only_here(
    attempt: TraceWithEvents, pair: Sequence[TraceWithEvents]
) -> TraceEvent | None:
    lines = event_lines(attempt.events, attempt.id, pair)
    found = [line.event for line in lines if line.is_only_here]
    calls = [event for event in found if event.event_type == "tool_call"]
    return next(iter(calls or found), None)


def _succeeded(trace: Trace) -> bool | None:
    return None if trace.outcome is None else trace.outcome == "success"


def event_lines(
    events: Sequence[TraceEvent], attempt_id: object, attempts: Sequence[TraceWithEvents]
) -> list[EventLine]:
    """The events of one attempt at a task, in order. `attempts` are all that are compared."""
    others = {_kind(e) for other in attempts if other.id != attempt_id for e in other.events}
    lines: list[EventLine] = []
    for before, event in zip((None, *events), events, strict=False):
        elapsed = None
        if before and before.timestamp and event.timestamp:
            elapsed = event.timestamp - before.timestamp
        lines.append(
            EventLine(
                event,
                is_result=_is_result(event, before, lines),
                elapsed=elapsed,
                tokens=count_tokens(event),
                is_only_here=len(attempts) > 1 and _differs(event, others),
            )
        )
    return lines


def count_tokens(item: TraceEvent | Trace) -> int | None:
    """The tokens that a client stated in `metadata`, alone or under `usage`; None if it did not."""
    usage: Any = item.metadata.get("usage", item.metadata)
    if not isinstance(usage, dict):
        return None
    stated = cast("dict[str, Any]", usage)
    counts = [stated.get("input_tokens"), stated.get("output_tokens")]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None


def _is_result(event: TraceEvent, before: TraceEvent | None, lines: Sequence[EventLine]) -> bool:
    if event.event_type not in RESULTS or before is None:
        return False
    return before.event_type == "tool_call" or lines[-1].is_result


def _differs(event: TraceEvent, others: Collection[tuple[str, str | None, str]]) -> bool:
    """Only calls and their results are compared: no two attempts use the same words."""
    return event.event_type in CALLS and _kind(event) not in others


def _kind(event: TraceEvent) -> tuple[str, str | None, str]:
    return event.event_type, event.tool_name, " ".join(event.content.split())
