"""Reads S4's playbook where it is used as it is, without an import: in `sections`, or in the flat
list `key_points` of older files. An entry is a key point `{name, text, helpful, harmful}`, with
`when_to_use` if the advice has a condition, an older one `{name, text, score}`, or only a text. The
active `bullets` of S2's playbook are key points too. Pure.

`serialization.parse_playbook` reads the same forms for an import and refuses what it cannot read.
Here such an entry is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from memory_api.playbooks.models import parse_key
from memory_api.playbooks.sections import DEFAULT_SECTIONS, find_section

FLAT_SECTION = "OTHERS"
"""The section of the entries of `key_points`, and of a bullet without one."""


@dataclass(frozen=True)
class KeyPoint:
    """One entry, with the list that holds it. An entry without a name gets the next free one of its
    section: `oth-004`.
    """

    section: str
    name: str
    text: str
    when_to_use: str
    helpful: int
    harmful: int
    entries: list[Any]
    position: int

    def add_verdict(self, tag: str) -> None:
        """Increments `helpful` or `harmful` in the playbook. An older entry gets counters.

        Raises ValueError for a counter or a score that is malformed. It is not changed.
        """
        entry = self.entries[self.position]
        if not isinstance(entry, dict):
            counters = {"helpful": self.helpful, "harmful": self.harmful}
            self.entries[self.position] = entry = {"name": self.name, "text": self.text, **counters}
        fields = cast("dict[str, Any]", entry)
        if tag in fields and not _is_count(fields[tag]):
            raise ValueError(f"`{tag}` is {fields[tag]!r}, not a whole number from 0")
        if "score" in fields and not _is_score(fields["score"]):
            raise ValueError(f"`score` is {fields['score']!r}, not a number")
        if _name(fields) is None:
            fields["name"] = self.name
        if "score" in fields and not {"helpful", "harmful"} <= fields.keys():
            del fields["score"]  # the counters replace it
            fields.setdefault("helpful", self.helpful)
            fields.setdefault("harmful", self.harmful)
        fields[tag] = fields.get(tag, 0) + 1


def list_key_points(playbook: Mapping[str, Any]) -> list[KeyPoint]:
    """All key points, in the order of the file. Skips what is neither a text nor has one."""
    numbers: dict[str, int] = {}
    for _, entry in _entries(playbook):
        if parsed := parse_key(_name(entry) or ""):
            numbers[parsed[0]] = max(numbers.get(parsed[0], 0), parsed[1])
    key_points: list[KeyPoint] = []
    for (section, entries, position), entry in _entries(playbook):
        fields = _fields(entry)
        text = entry if isinstance(entry, str) else fields.get("text", fields.get("content"))
        if not isinstance(text, str) or fields.get("status", "active") != "active":
            continue
        name = _name(entry)
        if name is None:
            slug = (find_section(DEFAULT_SECTIONS, section) or DEFAULT_SECTIONS[-1]).slug
            numbers[slug] = numbers.get(slug, 0) + 1
            name = f"{slug}-{numbers[slug]:03d}"
        when: Any = fields.get("when_to_use")
        when_to_use = when if isinstance(when, str) else ""
        counters = _counters(fields)
        key_points.append(KeyPoint(section, name, text, when_to_use, *counters, entries, position))
    return key_points


def _entries(playbook: Mapping[str, Any]) -> Iterator[tuple[tuple[str, list[Any], int], Any]]:
    """(section, list, position) and the entry. `bullets` wins over `sections`, and that over
    `key_points`.
    """
    bullets: Any = playbook.get("bullets")
    if isinstance(bullets, list):
        for position, bullet in enumerate(cast("list[Any]", bullets)):
            yield (str(_fields(bullet).get("section") or FLAT_SECTION), bullets, position), bullet
        return
    sections: Any = playbook.get("sections")
    if sections is None:
        sections = {FLAT_SECTION: playbook.get("key_points")}
    for section, entries in cast("Mapping[str, Any]", sections).items():
        points = cast("list[Any]", entries) if isinstance(entries, list) else []
        for position, entry in enumerate(points):
            yield (str(section), points, position), entry


def _fields(entry: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}


def _name(entry: Any) -> str | None:
    fields = _fields(entry)
    name = fields.get("name", fields.get("id"))
    return name if isinstance(name, str) and name else None


def _counters(fields: Mapping[str, Any]) -> tuple[int, int]:
    """(helpful, harmful). A positive score is helpful, a negative one harmful."""
    score: Any = fields.get("score")
    if _is_score(score) and not fields.keys() & {"helpful", "harmful"}:
        return max(round(score), 0), max(-round(score), 0)
    return _count(fields.get("helpful")), _count(fields.get("harmful"))


def _count(value: Any) -> int:
    return value if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_score(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
