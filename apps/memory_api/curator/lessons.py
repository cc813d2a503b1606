"""Lessons out of what was remembered of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from apps.memory_api.curator.schemas import HintIn, Lesson
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Memory
from apps.memory_api.reflection.general import general
from apps.memory_api.reflection.hints import Hint

TEACHES = (Kind.STRATEGY, Kind.INSIGHT)
"""What of a run's memories can become a bullet: a reflection only tells what happened."""
_PLAIN_TAGS = frozenset(("strategy", "insight"))


def lessons_of(memories: Sequence[Memory], hints: Sequence[Hint] = ()) -> list[Lesson]:
    """The strategies and insights among these memories, in their order; what the run says about
    bullets it used goes with the first. A run that only has something to say about bullets gives
    one lesson without a text.
    """
    taught = [_lesson(row) for row in memories if row.kind in TEACHES]
    said = [HintIn.model_validate(asdict(hint)) for hint in hints]
    if not said:
        return taught
    first = taught[0] if taught else Lesson(text="")
    return [first.model_copy(update={"hints": said}), *taught[1:]]


def _lesson(row: Memory) -> Lesson:
    about: dict[str, Any] = row.metadata_
    return Lesson(
        # A model was asked for a rule; what our own rules write has an example of its run in it.
        text=row.content if "model" in about else general(row.content),
        when_to_use=row.when_to_use or "",
        title=row.title or "",
        section=row.section or "",
        memory_id=row.id,
        kind=row.kind,
        trace_id=row.trace_id,
        importance=row.importance,
        confidence=0.5 if row.confidence is None else row.confidence,
        language=str(about.get("language") or "en"),
        tags=[tag for tag in row.tags if tag not in _PLAIN_TAGS],
    )
