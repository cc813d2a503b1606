"""Bullet keys (`slug-00001`), and the state that deltas are applied to.

Each slug has one counter, so a number is never assigned twice.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from memory_api.playbooks.models import Bullet, Playbook, VerdictTag, parse_key
from memory_api.playbooks.sections import DEFAULT_SECTIONS, SectionDefinition, with_fallback

MAX_KEY_LENGTH = 128
MAX_KEY_NUMBER = 999_999_999
"""An imported key with a larger number does not raise the counter."""


def is_valid_key(key: str) -> bool:
    """Whether a key can be used in a URL path and in the brackets of a citation."""
    is_plain = key.isprintable() and key.strip() == key and not set(key) & set("[]/")
    return is_plain and 0 < len(key) <= MAX_KEY_LENGTH and key not in (".", "..")


def format_key(slug: str, number: int) -> str:
    return f"{slug}-{number:05d}"


def next_key(slug: str, last_number: int, *taken: Container[str]) -> tuple[str, int]:
    """The next free key of a slug and its number, which is the new value of the counter."""
    number = last_number + 1
    while any(format_key(slug, number) in keys for keys in taken):
        number += 1
    return format_key(slug, number), number


@lru_cache(maxsize=1 << 12)
def sort_key(key: str) -> tuple[str, int, str]:
    """Sorts keys by slug and number (pat-2 before pat-10), and keys of other formats by
    their text.
    """
    slug, number = parse_key(key) or (key, -1)
    return slug, number, key


def raise_counters(key_counters: Mapping[str, int], keys: Iterable[str]) -> dict[str, int]:
    """The counters, raised to the highest number that these keys use."""
    raised = dict(key_counters)
    for key in keys:
        slug, number = parse_key(key) or ("", 0)
        if slug and raised.get(slug, 0) < number <= MAX_KEY_NUMBER:
            raised[slug] = number
    return raised


@dataclass(frozen=True)
class PlaybookState:
    """The bullets that deltas can change, by key: all except deleted ones.

    `key_counters` is the highest number ever assigned, by slug. `aliases` maps a merged key to its
    survivor, never to another alias.
    """

    bullets: Mapping[str, Bullet] = field(default_factory=dict[str, Bullet])
    sections: tuple[SectionDefinition, ...] = DEFAULT_SECTIONS
    key_counters: Mapping[str, int] = field(default_factory=dict[str, int])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def from_playbook(
        cls,
        playbook: Playbook,
        sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS,
        key_counters: Mapping[str, int] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> PlaybookState:
        """Raises ValueError when two bullets share a key."""
        bullets = {bullet.id: bullet for bullet in playbook.bullets}
        if len(bullets) < len(playbook.bullets):
            raise ValueError("two bullets share a key")
        merged = {key: to for key, to in (aliases or {}).items() if key not in bullets}
        counters = raise_counters(key_counters or {}, [*bullets, *merged])
        return cls(bullets, with_fallback(sections), counters, merged)

    def resolve(self, key: str) -> str | None:
        """The key itself, or its survivor if it was merged; None if neither exists."""
        key = self.aliases.get(key, key)
        return key if key in self.bullets else None

    def add_verdict(self, key: str, tag: VerdictTag) -> PlaybookState:
        """Counts one verdict on the bullet, or on its survivor if it was merged. Raises KeyError
        for an unknown key.
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
