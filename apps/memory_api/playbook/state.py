"""A playbook as deltas see it: bullets by key, and what outlives a bullet: counters of keys, and
aliases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from apps.memory_api.playbook.keys import lift
from apps.memory_api.playbook.schemas import Bullet, Playbook, Vote
from apps.memory_api.playbook.sections import DEFAULT_SECTIONS, SectionDefinition, with_fallback


@dataclass(frozen=True)
class PlaybookState:
    """What deltas act on: every bullet that is not deleted, quarantined and archived ones too.

    `last_numbers` is the highest number ever given, by slug; `aliases` leads from a merged key to
    its survivor, never to another alias.
    """

    bullets: Mapping[str, Bullet] = field(default_factory=dict[str, Bullet])
    sections: tuple[SectionDefinition, ...] = DEFAULT_SECTIONS
    last_numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(
        cls,
        playbook: Playbook,
        sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS,
        last_numbers: Mapping[str, int] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> PlaybookState:
        """Raises ValueError when two bullets share a key."""
        bullets = {bullet.id: bullet for bullet in playbook.bullets}
        if len(bullets) < len(playbook.bullets):
            raise ValueError("two bullets share a key")
        followed = {key: to for key, to in (aliases or {}).items() if key not in bullets}
        numbers = lift(last_numbers or {}, [*bullets, *followed])
        return cls(bullets, with_fallback(sections), numbers, followed)

    def resolve(self, key: str) -> str | None:
        """The key that stands for this one today: itself, or its survivor; else None."""
        key = self.aliases.get(key, key)
        return key if key in self.bullets else None

    def vote(self, key: str, tag: Vote) -> PlaybookState:
        """The state with one vote more, on the survivor when the key was merged. KeyError for an
        unknown key.
        """
        survivor = self.resolve(key)
        if survivor is None:
            raise KeyError(key)
        bullet = self.bullets[survivor]
        counted = bullet.model_copy(update={tag: getattr(bullet, tag) + 1})
        bullets = {**self.bullets, survivor: counted}
        return replace(self, bullets=bullets)

    def playbook(self) -> Playbook:
        return Playbook(bullets=list(self.bullets.values()))
