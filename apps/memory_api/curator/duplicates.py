"""When two lessons say the same (docs/decisions/near-duplicates.md): wording and meaning are near,
and nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from apps.memory_api.playbook.rolls import join
from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.similar import wording_similarity
from apps.memory_api.playbook.unlike import contradict, unlike, without_examples

WORDING = 0.85
COSINE = 0.8
"""Both are wanted. The cosine is that of the shipped embedder; with another it only ever keeps
apart what the wording would join.
"""
SAME_BUT_FOR_EXAMPLES = 0.98
"""From here on the wording alone decides: only examples in brackets differ."""


@dataclass(frozen=True)
class Near:
    """A bullet near a lesson. `cosine` is None where nobody measured it."""

    bullet: Bullet
    id: UUID
    cosine: float | None = None
    witnesses: int = 1


def likeness(a: str, b: str) -> float:
    """How alike two texts are in wording, 0..1, examples in brackets counted or not."""
    return max(wording_similarity(a, b), _plainly(a, b))


def same(a: str, b: str, cosine: float | None = None) -> bool:
    """Whether one of the two could be left out and nothing that an agent could act on is lost."""
    if likeness(a, b) < WORDING or unlike(a, b) is not None:
        return False
    return cosine is None or cosine >= COSINE or _plainly(a, b) >= SAME_BUT_FOR_EXAMPLES


def twins(text: str, near: Iterable[Near]) -> list[Near]:
    """The bullets that say the same as a text, the most alike first."""
    found = [n for n in near if same(text, n.bullet.content, n.cosine)]
    return sorted(found, key=lambda n: -likeness(text, n.bullet.content))


def relative(text: str, near: Iterable[Near]) -> Near | None:
    """The bullet that gives the same advice, maybe for other tools."""
    return next((n for n in near if join(n.bullet.content, text) is not None), None)


def opponents(text: str, near: Iterable[Near]) -> list[Near]:
    """The bullets that say the contrary of a text."""
    return [n for n in near if contradict(text, n.bullet.content)]


def first_same(text: str, others: Mapping[str, str]) -> str | None:
    """The key of the first of these texts that says the same, by wording."""
    return next((key for key, other in others.items() if same(text, other)), None)


def _plainly(a: str, b: str) -> float:
    return wording_similarity(without_examples(a), without_examples(b))
