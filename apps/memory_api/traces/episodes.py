"""Episodes: one line of memory per trace, in layer em, so that what happened can be found later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from apps.memory_api.traces.schemas import Event, EventType

MAX_PART = 600


def episode_text(
    task: str | None, goal: str | None, outcome: str | None, events: Sequence[Event]
) -> str:
    """What was asked, what was used, how it ended. Facts of the trace only, in its own words."""
    asked = task or _first(events, EventType.USER_MESSAGE) or goal or ""
    tools = Counter(event.tool_name for event in events if event.tool_name)
    used = ", ".join(f"{name} ×{count}" for name, count in tools.most_common(8))
    lines = [
        _cut(asked),
        f"Outcome: {outcome or 'unknown'}; {len(events)} events.",
        f"Tools: {used}." if used else "",
        _cut(_last_words(events)),
    ]
    return "\n".join(line for line in lines if line)


def _first(events: Sequence[Event], kind: EventType) -> str:
    return next((event.content for event in events if event.event_type == kind), "")


def _last_words(events: Sequence[Event]) -> str:
    said = (EventType.LLM_RESPONSE, EventType.ERROR_EVENT, EventType.TOOL_RESPONSE)
    for event in reversed(events):
        if event.event_type in said and event.content:
            return event.content
    return ""


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_PART else text[: MAX_PART - 1] + "…"
