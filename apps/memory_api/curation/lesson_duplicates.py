"""Find duplicates and contradictions of lessons and bullets (docs/decisions/near-duplicates.md).

If a new bullet contradicts an old one, both are linked, and the weaker one is quarantined until a
person decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.curation.schemas import Lesson, ProposedChange
from memory_api.memories.queries import NewLink, add_links
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.editing.plan import ChangePlan
from memory_api.playbooks.models import Bullet
from memory_api.playbooks.queries import find_bullets
from memory_api.text.advice import merge_tool_lists
from memory_api.text.differences import contradicts, find_difference, strip_examples
from memory_api.text.similarity import wording_similarity

MIN_WORDING_SIMILARITY = 0.85
MIN_COSINE = 0.8
"""Both are required. The cosine is calibrated for the built-in embedder; another one can only
prevent a match by wording.
"""
MIN_SIMILARITY_WITHOUT_EXAMPLES = 0.98
"""The wording similarity without examples above which the cosine is ignored."""


@dataclass(frozen=True)
class NearbyBullet:
    """A bullet near a lesson. `cosine` is None if it was not computed."""

    bullet: Bullet
    id: UUID
    cosine: float | None = None
    observation_count: int = 1


def max_wording_similarity(first: str, second: str) -> float:
    """The wording similarity of two texts, 0 to 1: the higher value of with and without examples in
    brackets.
    """
    return max(wording_similarity(first, second), _similarity_without_examples(first, second))


def is_duplicate(first: str, second: str, cosine: float | None = None) -> bool:
    """Whether an agent loses no advice if one of the two texts is removed."""
    is_near = cosine is None or cosine >= MIN_COSINE
    similarity = _similarity_without_examples(first, second)
    if not is_near and similarity < MIN_SIMILARITY_WITHOUT_EXAMPLES:
        return False
    if similarity < MIN_WORDING_SIMILARITY:
        similarity = wording_similarity(first, second)
    return similarity >= MIN_WORDING_SIMILARITY and find_difference(first, second) is None


def find_duplicates(text: str, near: Iterable[NearbyBullet]) -> list[NearbyBullet]:
    """The duplicates of a text, the most similar first."""
    duplicates = [
        nearby for nearby in near if is_duplicate(text, nearby.bullet.content, nearby.cosine)
    ]
    return sorted(
        duplicates, key=lambda nearby: -max_wording_similarity(text, nearby.bullet.content)
    )


def find_same_advice(text: str, near: Iterable[NearbyBullet]) -> NearbyBullet | None:
    """The first bullet with the same advice, possibly for other tools."""
    return next(
        (nearby for nearby in near if merge_tool_lists(nearby.bullet.content, text) is not None),
        None,
    )


def find_contradictions(text: str, near: Iterable[NearbyBullet]) -> list[NearbyBullet]:
    """The bullets that contradict a text."""
    return [nearby for nearby in near if contradicts(text, nearby.bullet.content)]


def find_first_duplicate(text: str, others: Mapping[str, str]) -> str | None:
    """The key of the first duplicate of a text, by wording."""
    return next((key for key, other in others.items() if is_duplicate(text, other)), None)


def _similarity_without_examples(first: str, second: str) -> float:
    return wording_similarity(strip_examples(first), strip_examples(second))


@dataclass(frozen=True)
class Contradiction:
    """A new bullet that contradicts an old one, and which of them is weaker."""

    new: str
    old: str
    new_loses: bool

    @property
    def loser(self) -> str:
        return self.new if self.new_loses else self.old

    @property
    def winner(self) -> str:
        return self.old if self.new_loses else self.new


def contradictions_of(
    changes: Sequence[ProposedChange],
    lessons: Sequence[Lesson],
    plan: ChangePlan,
    rows: Mapping[str, MemoryRow],
) -> list[Contradiction]:
    """The added bullets that contradict an active one. A new bullet that is weaker than one of them
    is quarantined and causes no other quarantine.
    """
    contradictions: list[Contradiction] = []
    for result in plan.results:
        if result.action != "added" or result.key is None:
            continue
        change = changes[result.index]
        deleted = plan.before.keys() - plan.after.bullets.keys()
        named = [rows[key] for key in change.contradicts if key in rows and key not in deleted]
        old = [row for row in named if row.status == MemoryStatus.ACTIVE]
        seen = len({observation_source(lessons[index], index) for index in change.lessons})
        loses = any(is_new_bullet_weaker(row, seen, by_model=change.by_model) for row in old)
        contradictions += [Contradiction(result.key, row.key or "", loses) for row in old]
    return contradictions


def is_new_bullet_weaker(old: MemoryRow, observation_count: int, *, by_model: bool) -> bool:
    """Compares counters first, then observations; equal bullets keep the old one. A contradiction
    that a model states never quarantines a bullet without more harmful than helpful verdicts.
    """
    if old.pinned or old.helpful > old.harmful:
        return True
    if old.harmful > old.helpful:
        return False
    return by_model or observation_count <= old.observation_count


async def link_contradictions(
    session: AsyncSession, scope: int, contradictions: Sequence[Contradiction]
) -> None:
    keys = {
        key for contradiction in contradictions for key in (contradiction.new, contradiction.old)
    }
    rows = await find_bullets(session, scope, keys) if keys else {}
    links = (
        NewLink(rows[contradiction.new].id, "contradicts", "memory", rows[contradiction.old].id)
        for contradiction in contradictions
    )
    await add_links(session, links)


def observation_source(lesson: Lesson, index: int) -> object:
    """The identity of an observation: its trace, else its memory."""
    return lesson.trace_id or lesson.memory_id or index
