"""Keys of bullets: `slug-00001`, from one counter per slug that never gives a number twice."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-([0-9]+)")
_LEGACY = re.compile(r"kpt_([0-9]+)")
LEGACY_SLUG = "kpt"
MAX_KEY = 128
LAST_NUMBER = 999_999_999
"""A number above this, in an imported key, does not lift the counter: it can never be reached
either.
"""


def is_key(key: str) -> bool:
    """Whether a key can stand in a path, and in the brackets of a citation."""
    plain = key.isprintable() and key.strip() == key and not set(key) & set("[]/")
    return plain and 0 < len(key) <= MAX_KEY and key not in (".", "..")


def parse_key(key: str) -> tuple[str, int] | None:
    """(slug, number) of a key, legacy `kpt_007` as ("kpt", 7); None for a key of another make."""
    if legacy := _LEGACY.fullmatch(key):
        return LEGACY_SLUG, int(legacy[1])
    if match := _KEY.fullmatch(key):
        return match[1], int(match[2])
    return None


def format_key(slug: str, number: int) -> str:
    return f"{slug}-{number:05d}"


def next_key(slug: str, last_number: int, *taken: Container[str]) -> tuple[str, int]:
    """The next key of a slug and its number, which is the counter's new value."""
    number = last_number + 1
    while any(format_key(slug, number) in keys for keys in taken):
        number += 1
    return format_key(slug, number), number


def sort_key(key: str) -> tuple[str, int, str]:
    """Keys in reading order: pat-2 before pat-10, keys of another make by their text."""
    slug, number = parse_key(key) or (key, -1)
    return slug, number, key


def lift(last_numbers: Mapping[str, int], keys: Iterable[str]) -> dict[str, int]:
    """The counters, raised to the highest number that these keys use."""
    lifted = dict(last_numbers)
    for key in keys:
        slug, number = parse_key(key) or ("", 0)
        if slug and lifted.get(slug, 0) < number <= LAST_NUMBER:
            lifted[slug] = number
    return lifted
