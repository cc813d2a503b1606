"""Which agents took part in a run. The two roles of a chat are one agent and its user."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from memory_api.traces.schemas import Event, EventType

_ANNOTATED = re.compile(r"^(?P<agent>.*?)\s*\([^)]{1,80}\)\s*$")
_ROLES = frozenset(
    [
        "ai",
        "assistant",
        "bot",
        "chatbot",
        "developer",
        "function",
        "human",
        "model",
        "system",
        "tool",
        "user",
    ]
)
"""Names that chat formats give to the parts of one conversation."""
_ACTING_TYPES = (EventType.LLM_RESPONSE, EventType.TOOL_CALL)


def base_name(agent: str | None) -> str:
    """An agent's name without an annotation: `Orchestrator (thought)` is `Orchestrator`."""
    match = _ANNOTATED.match(agent or "")
    return match["agent"] if match else agent or ""


def agent_steps(events: Sequence[Event]) -> dict[str, int]:
    """How many messages and calls each agent has, in order of the first one; {} unless at least
    two agents took part.
    """
    names = [base_name(e.agent) for e in events if e.agent and e.event_type in _ACTING_TYPES]
    counts = Counter(name for name in names if name.casefold() not in _ROLES)
    return dict(counts) if len(counts) > 1 else {}
