"""Spec 4's playbook.json: sections of `{name, text, helpful, harmful}`; older files of bare strings
and one score too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, cast

from apps.memory_api.playbook.found import Findings, Found
from apps.memory_api.playbook.schemas import Bullet, CorruptPlaybook, Playbook

_KNOWN = {"name", "text", "helpful", "harmful", "score"}


def read_spec4(data: Mapping[str, Any]) -> Findings:
    """The entries of `sections`, or, where there are none, of the flat `key_points` of older files,
    as OTHERS.

    Raises CorruptPlaybook, naming the place, for whatever has the wrong shape.
    """
    found = Findings(updated_at=_time(data.get("last_updated")))
    sections: Any = data.get("sections")
    if sections is None:
        sections = {"OTHERS": data.get("key_points")}
        found.notes.append("a flat list of key points: all go to OTHERS")
    elif "key_points" in data:
        found.notes.append("both sections and key_points: the sections win")
    if not isinstance(sections, Mapping):
        raise CorruptPlaybook("sections", "not an object")
    for section, entries in cast("Mapping[str, Any]", sections).items():
        place = f"sections.{section}" if "sections" in data else "key_points"
        if not isinstance(entries, list):
            raise CorruptPlaybook(place, "not a list")
        found.section_names.append(section)
        for n, entry in enumerate(cast("list[Any]", entries)):
            found.entries.append(_entry(found, f"{place}[{n}]", section, entry))
    return found


def write_spec4(groups: Iterable[tuple[str, list[Bullet]]], playbook: Playbook) -> dict[str, Any]:
    return {
        "version": "1.0",
        "last_updated": playbook.metadata.updated_at.isoformat(),
        "sections": {
            section: [
                {"name": b.id, "text": b.content, "helpful": b.helpful, "harmful": b.harmful}
                for b in bullets
            ]
            for section, bullets in groups
        },
    }


def _entry(found: Findings, place: str, section: str, entry: Any) -> Found:
    if isinstance(entry, str):
        return Found(place, section, None, entry)
    if not isinstance(entry, Mapping):
        raise CorruptPlaybook(place, "neither a text nor an object")
    fields = cast("Mapping[str, Any]", entry)
    if unknown := sorted(fields.keys() - _KNOWN):
        found.notes.append(f"{place}: not kept: {', '.join(unknown)}")
    text, name = fields.get("text"), fields.get("name")
    if not isinstance(text, str):
        raise CorruptPlaybook(f"{place}.text", "missing, or not a text")
    if name is not None and not (isinstance(name, str) and name):
        raise CorruptPlaybook(f"{place}.name", "not a name")
    helpful, harmful = _counters(fields, place)
    return Found(place, section, name, text, helpful, harmful)


def _counters(fields: Mapping[str, Any], place: str) -> tuple[int, int]:
    """Two counters as they are; of one score, its good or its bad side."""
    if "helpful" in fields or "harmful" in fields:
        helpful, harmful = (
            _count(fields.get(k, 0), f"{place}.{k}") for k in ("helpful", "harmful")
        )
        return helpful, harmful
    score = fields.get("score", 0)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise CorruptPlaybook(f"{place}.score", "not a number")
    return max(round(score), 0), max(-round(score), 0)


def _count(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CorruptPlaybook(place, "not a count")
    return value


def _time(value: Any) -> datetime | None:
    """A time that cannot be read is no reason to refuse a playbook."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
