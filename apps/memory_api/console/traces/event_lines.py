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
