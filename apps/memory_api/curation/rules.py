"""The curator without a model.

A lesson with the words of a bullet counts as another observation of it. Any other lesson becomes a
new bullet.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory_api.curation.context import CurationContext
from memory_api.curation.schemas import (
    Decisions,
    KnownLesson,
    Lesson,
    ProposedChange,
    RejectedLesson,
    new_delta,
)
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.sections import SectionDefinition, find_section, with_fallback

OPEN_PROPOSAL_REASON = "A proposal with this lesson is waiting for review."
MAX_CONTENT_CHARACTERS = 4_000
"""Maximum number of characters of a bullet."""


def choose_section(lesson: Lesson, sections: Sequence[SectionDefinition]) -> str:
    """The requested section if it exists, else the first one for a strategy and OTHERS for an
    insight.
    """
    known = with_fallback(sections)
    requested = find_section(known, lesson.section) if lesson.section else None
    fallback = known[0] if lesson.kind == MemoryKind.STRATEGY else find_section(known, "OTHERS")
    return (requested or fallback or known[-1]).name


def decide_by_rules(lessons: Sequence[Lesson], context: CurationContext) -> Decisions:
    """Decides on every lesson: known, rejected, or part of a new bullet; by descending weight."""
    decisions = Decisions()
    order = sorted(range(len(lessons)), key=lambda index: (-weigh_lesson(lessons[index]), index))
    added: dict[bytes, ProposedChange] = {}
    for index in order:
        _decide_lesson(decisions, added, index, lessons[index], context)
    return decisions


def weigh_lesson(lesson: Lesson) -> float:
    return lesson.importance * lesson.confidence


def _decide_lesson(
    decisions: Decisions,
    added: dict[bytes, ProposedChange],
    index: int,
    lesson: Lesson,
    context: CurationContext,
) -> None:
    """`added` are the new bullets of this run by the fingerprint of their text."""
    text = lesson.text.strip()
    known = context.known.get(index)
    key = (known.key if known else None) or context.same_text.get(index)
    if not text or len(text) > MAX_CONTENT_CHARACTERS:
        limit = f"The lesson is longer than {MAX_CONTENT_CHARACTERS:,} characters."
        reason = limit if text else "The lesson is empty."
        decisions.rejected_lessons.append(RejectedLesson(reason=reason, lessons=[index]))
    elif key is not None:
        reason = known.reason if known and known.key else f"Matches bullet {key}."
        decisions.known_lessons.append(KnownLesson(lesson=index, key=key, reason=reason))
    elif known is not None:
        decisions.rejected_lessons.append(RejectedLesson(reason=known.reason, lessons=[index]))
    elif fingerprint(text) in context.waiting:
        rejected = RejectedLesson(reason=OPEN_PROPOSAL_REASON, lessons=[index])
        decisions.rejected_lessons.append(rejected)
    elif same := added.get(fingerprint(text)):
        same.lessons.append(index)
    else:
        delta = new_delta(
            "ADD",
            section=choose_section(lesson, context.state.sections),
            content=text,
            title=lesson.title or None,
            when_to_use=lesson.when_to_use or None,
            tags=lesson.tags or None,
            reasoning="No bullet matches this lesson.",
        )
        added[fingerprint(text)] = ProposedChange(delta=delta, lessons=[index])
        decisions.changes.append(added[fingerprint(text)])
