"""Advice that proved useful keeps its text: verdicts are about a text, and the author of a trace
may control what a model writes over it.

A bullet is proven if it has more helpful than harmful verdicts. A model's UPDATE of one may add to
its text; any other one becomes a bullet of its own, without verdicts, and if it does not contain
the old content, it contradicts it (`contradictions.py`). A MERGE retains the text of the bullet
that is judged best, so the new text replaces the old one when it is judged better. Trials are not
proven. People change any text.
"""

from __future__ import annotations

from memory_api.curation.content_checks import contains_advice, find_lost_words
from memory_api.curation.schemas import (
    CurationPlan,
    KnownLesson,
    ProposedChange,
    RejectedLesson,
    new_delta,
)
from memory_api.playbooks.models import TRIAL, Bullet
from memory_api.playbooks.state import PlaybookState
from memory_api.playbooks.usefulness import usefulness
from memory_api.text.similarity import containment

MIN_SHARED_WORDS = 0.9
"""The share of the words of a merged text that the retained text must have, 0 to 1: what the model
adds would be lost.
"""


def retain_proven_texts(plan: CurationPlan, state: PlaybookState) -> CurationPlan:
    """The plan without changes of the texts of proven bullets."""
    changes: list[ProposedChange] = []
    known, rejected = list(plan.known_lessons), list(plan.rejected_lessons)
    unchanged: set[str | None] = set()
    for change in plan.changes:
        key = change.delta.bullet_id
        retained = _retain(change, state) if change.by_model else change
        if isinstance(retained, str):
            unchanged.add(key)
            delta = change.delta.model_dump(mode="json", exclude_defaults=True)
            rejected.append(
                RejectedLesson(reason=retained, lessons=change.lessons, delta=delta, retry=True)
            )
        elif retained is None:
            known += [KnownLesson(lesson=index, key=key or "") for index in change.lessons]
        elif change.depends_on is None or change.depends_on not in unchanged:
            changes.append(retained)
    if changes == plan.changes:
        return plan
    update = {"changes": changes, "known_lessons": known, "rejected_lessons": rejected}
    return plan.model_copy(update=update)


def _retain(change: ProposedChange, state: PlaybookState) -> ProposedChange | str | None:
    """The change, or the one in its place; the reason to refuse it; None if its lessons add nothing
    to the bullet.
    """
    delta = change.delta
    keys = [key for key in (delta.bullet_id, *delta.source_ids) if key]
    bullets = [state.bullets[key] for key in keys if key in state.bullets]
    proven = [bullet for bullet in bullets if _is_proven(bullet)]
    if not proven or delta.type not in ("UPDATE", "MERGE"):
        return change
    if delta.type == "MERGE":
        return _retain_best(change, proven, bullets)
    if not change.lessons:
        return f"{delta.bullet_id} has helpful verdicts: only a person changes its text."
    return _add_or_separate(change, proven[0])


def _is_proven(bullet: Bullet) -> bool:
    return bullet.helpful > bullet.harmful and not bullet.content.startswith(TRIAL)


def _retain_best(
    change: ProposedChange, proven: list[Bullet], bullets: list[Bullet]
) -> ProposedChange | str:
    delta = change.delta
    best = max(proven, key=lambda bullet: usefulness(bullet.helpful, bullet.harmful))
    others = [bullet for bullet in bullets if bullet.id != best.id]
    text = f"{best.when_to_use} {best.title} {best.content}"
    if containment(delta.content, text) < MIN_SHARED_WORDS:
        return f"{best.id} has helpful verdicts, and the merged text is another one."
    lost = (find_lost_words(bullet, best.when_to_use, best.content) for bullet in others)
    if problem := next(filter(None, lost), None):
        return problem
    merged = new_delta(
        "MERGE",
        bullet_id=best.id,
        source_ids=[bullet.id for bullet in others],
        reasoning=delta.reasoning,
    )
    return change.model_copy(update={"delta": merged})


def _add_or_separate(change: ProposedChange, bullet: Bullet) -> ProposedChange | None:
    delta = change.delta
    content, when = delta.content or bullet.content, delta.when_to_use or bullet.when_to_use
    adds_nothing = contains_advice(bullet.content, content)
    if adds_nothing and contains_advice(bullet.when_to_use, when):
        return None
    has_condition = bool(bullet.when_to_use) == bool(when) and contains_advice(
        when, bullet.when_to_use
    )
    if has_condition and contains_advice(content, bullet.content):
        return change
    if adds_nothing:
        content, when = f"{when}: {content}", ""
    added = new_delta(
        "ADD",
        section=bullet.section,
        content=content,
        when_to_use=when,
        title=delta.title or bullet.title,
        tags=bullet.tags or None,
        reasoning=delta.reasoning,
    )
    contradicts = [] if contains_advice(content, bullet.content) else [bullet.id]
    return change.model_copy(update={"delta": added, "contradicts": contradicts})
