"""The curator without a model: each lesson is new, is said already, or says more than what is said.

What a bullet says already is kept out and counts as a witness. The advice of a bullet for one more
tool goes into the roll of that bullet (`playbook/rolls.py`). A lesson that holds all the words of a
bullet and adds something concrete takes its place. A lesson that says the contrary of a bullet is
added beside it and named as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.memory_api.curator.duplicates import Near, first_same, opponents, relative, same, twins
from apps.memory_api.curator.placing import as_add
from apps.memory_api.curator.schemas import Candidate, HintIn, KeptLesson, LeftOut, Lesson, delta
from apps.memory_api.curator.view import View
from apps.memory_api.playbook.rolls import join
from apps.memory_api.playbook.schemas import Bullet, DeltaContextItem
from apps.memory_api.playbook.similar import contained
from apps.memory_api.playbook.unlike import concrete

FULLER = 0.98
"""A lesson takes a bullet's place when it has at least this share of its words."""
LONGEST = 4_000
"""Characters of a bullet at most: a lesson is not a report."""


@dataclass
class Settled:
    """What the rules made of lessons."""

    candidates: list[Candidate] = field(default_factory=list[Candidate])
    kept: list[KeptLesson] = field(default_factory=list[KeptLesson])
    dropped: list[LeftOut] = field(default_factory=list[LeftOut])

    @property
    def open(self) -> list[int]:
        """The lessons that would change the playbook, hints aside."""
        return sorted({n for c in self.candidates if not _is_hint(c) for n in c.lessons})

    @property
    def about_hints(self) -> list[Candidate]:
        return [c for c in self.candidates if _is_hint(c)]


def settle(lessons: Sequence[Lesson], view: View) -> Settled:
    """Every lesson is kept, dropped, or part of a candidate; the weightiest come first."""
    settled = Settled()
    order = sorted(range(len(lessons)), key=lambda n: (-weight(lessons[n]), n))
    for index in order:
        _settle(settled, index, lessons[index], view)
    hinted: set[str] = set()
    for index in order:
        for hint in lessons[index].hints:
            if hint.key not in hinted and (found := _by_hint(index, hint, view)):
                hinted.add(hint.key)
                settled.candidates.append(found)
    return settled


def weight(lesson: Lesson) -> float:
    return lesson.importance * lesson.confidence


def _settle(settled: Settled, index: int, lesson: Lesson, view: View) -> None:
    text = lesson.text.strip()
    if not text or len(text) > LONGEST:
        reason = "it is empty" if not text else f"it is longer than {LONGEST} characters"
        settled.dropped.append(LeftOut(reason=reason, lessons=[index]))
        return
    known = view.known.get(index)
    if known is not None and known.key is not None:
        settled.kept.append(KeptLesson(lesson=index, key=known.key, reason=known.reason))
        return
    if family := relative(text, view.near[index]):
        _grow(settled, index, text, family.bullet)
        return
    found = twins(text, view.near[index])
    if found:
        _beside(settled, index, lesson, found)
    elif known is not None:
        settled.dropped.append(LeftOut(reason=known.reason, lessons=[index]))
    elif any(same(text, other) for other in view.waiting):
        settled.dropped.append(LeftOut(reason="a person was asked already", lessons=[index]))
    elif not _joins(settled, index, text):
        _add(settled, index, lesson, view)


def _grow(settled: Settled, index: int, text: str, bullet: Bullet) -> None:
    """The bullet says the advice; its roll gets what the lesson has more."""
    wanted = next((c for c in settled.candidates if c.delta.bullet_id == bullet.id), None)
    if wanted is not None and wanted.delta.content:
        _into(wanted, index, text)
        return
    whole = join(bullet.content, text)
    if whole == bullet.content or whole is None or not _is_free(bullet) or wanted is not None:
        settled.kept.append(KeptLesson(lesson=index, key=bullet.id, reason=f"{bullet.id} says it"))
        return
    settled.candidates.append(Candidate(delta=grown(bullet.id, whole), lessons=[index]))


def grown(key: str, content: str) -> DeltaContextItem:
    """A bullet with a longer roll."""
    reason = "the same advice was needed elsewhere"
    return delta("UPDATE", bullet_id=key, content=content, reasoning=reason)


def _into(wanted: Candidate, index: int, text: str) -> bool:
    """Whether a change that is wanted already takes this lesson's roll in."""
    whole = join(wanted.delta.content or "", text)
    if whole is None:
        return False
    wanted.delta.content = whole
    wanted.lessons.append(index)
    return True


def _beside(settled: Settled, index: int, lesson: Lesson, found: Sequence[Near]) -> None:
    best = found[0].bullet
    if fuller(lesson.text, best) and not _has_target(settled, best.id):
        change = delta(
            "UPDATE",
            bullet_id=best.id,
            content=lesson.text.strip(),
            reasoning="the same lesson, with more to act on",
        )
        settled.candidates.append(Candidate(delta=change, lessons=[index]))
        return
    merge = _mergeable(found)
    if merge is not None and not any(_has_target(settled, n.bullet.id) for n in merge):
        settled.candidates.append(Candidate(delta=merged(*merge), lessons=[index]))
        return
    settled.kept.append(KeptLesson(lesson=index, key=best.id, reason=f"{best.id} says it"))


def fuller(text: str, bullet: Bullet) -> bool:
    """Whether a text says all that a bullet says and something concrete besides: a name, a
    number.
    """
    if not _is_free(bullet):
        return False
    return contained(bullet.content, text) >= FULLER and bool(
        concrete(text) - concrete(bullet.content)
    )


def _is_free(bullet: Bullet) -> bool:
    return bullet.status == "active" and not bullet.pinned


def merged(first: Near, second: Near) -> DeltaContextItem:
    """Two bullets that say the same become one: that with more evidence, in its own words."""
    survivor, other = sorted((first, second), key=lambda n: (-evidence(n), n.bullet.id))
    return delta(
        "MERGE",
        bullet_id=survivor.bullet.id,
        source_ids=[other.bullet.id],
        reasoning=f"{other.bullet.id} says the same",
    )


def evidence(near: Near) -> int:
    """How many runs speak for or about a bullet."""
    return near.bullet.helpful + near.bullet.harmful + near.witnesses


def _mergeable(found: Sequence[Near]) -> tuple[Near, Near] | None:
    free = [n for n in found if _is_free(n.bullet)]
    if len(free) < 2 or not same(free[0].bullet.content, free[1].bullet.content):
        return None
    return free[0], free[1]


def _joins(settled: Settled, index: int, text: str) -> bool:
    """Whether another lesson of this run says it already."""
    if any(_into(wanted, index, text) for wanted in settled.candidates):
        return True
    said = {str(n): c.delta.content for n, c in enumerate(settled.candidates) if c.delta.content}
    place = first_same(text, said)
    if place is None:
        return False
    settled.candidates[int(place)].lessons.append(index)
    return True


def _add(settled: Settled, index: int, lesson: Lesson, view: View) -> None:
    against = [n.bullet.id for n in opponents(lesson.text, view.near[index])]
    reason = f"against {', '.join(against)}" if against else "no bullet says it"
    change = as_add(lesson, view.state.sections, reason)
    settled.candidates.append(Candidate(delta=change, lessons=[index], contradicts=against))


def _by_hint(index: int, hint: HintIn, view: View) -> Candidate | None:
    """A bullet that was relied on before a failure is told more exactly when it applies."""
    key = view.state.resolve(hint.key)
    if hint.action != "revise" or not hint.when_to_use or key is None:
        return None
    change = delta(
        "UPDATE",
        bullet_id=key,
        when_to_use=hint.when_to_use,
        reasoning=hint.reason or "it was relied on before a failure",
    )
    return Candidate(delta=change, lessons=[index])


def _is_hint(candidate: Candidate) -> bool:
    """Only when to use a bullet changes."""
    return candidate.delta.type == "UPDATE" and not candidate.delta.content


def _has_target(settled: Settled, key: str) -> bool:
    return any(key in (c.delta.bullet_id, *c.delta.source_ids) for c in settled.candidates)
