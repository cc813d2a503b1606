"""Which bullets a session has to do with, by its own words: what the agent said and called. What it
read is no evidence, because anybody may have written that. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.text.tokens import terms
from apps.memory_api.traces.schemas import Event, EventType

OWN = (EventType.LLM_RESPONSE, EventType.TOOL_CALL)
ENOUGH = 0.5
"""Share of a bullet's terms that must occur in the session."""
LEAST = 2
"""Terms in common; one word says nothing."""


def touch(events: Sequence[Event], bullets: Iterable[Bullet]) -> dict[str, float]:
    """Key → share of the bullet's terms that the agent used, 0 to 1."""
    own: set[str] = set()
    for event in events:
        if event.event_type in OWN:
            own.update(terms(event.content))
            own.update(terms(event.tool_name or ""))
    return {bullet.id: _share(bullet, own) for bullet in bullets}


def _share(bullet: Bullet, own: set[str]) -> float:
    asked = set(terms(f"{bullet.when_to_use} {bullet.content}"))
    common = len(asked & own)
    return common / len(asked) if common >= LEAST else 0.0
