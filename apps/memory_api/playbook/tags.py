"""Counting a reflector's tags on spec 4's playbook (REQ-REFL-007). The service counts verdicts;
this is the pure rule.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, cast

_COUNTED = ("helpful", "harmful")


def apply_bullet_tags(
    playbook: dict[str, Any], bullet_tags: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The same dict, with one helpful or harmful more for each tag `{name, tag, rationale}`;
    `neutral` counts nothing.

    Every tag is applied, also two for one key point, and again when called again. An unknown name
    or tag, and what is no tag at all, is reported on stderr and skipped. Counters only ever grow.
    """
    sections = cast("dict[str, list[Any]]", playbook.get("sections", {}))
    points: dict[Any, dict[str, Any]] = {
        entry["name"]: entry
        for entries in sections.values()
        for entry in entries
        if _is_point(entry)
    }
    for given in cast("Iterable[Any]", bullet_tags):
        if not isinstance(given, Mapping):
            _report(f"not a tag: {given!r}, skipped")
            continue
        name, tag = (cast("Mapping[str, Any]", given).get(field) for field in ("name", "tag"))
        point = points.get(name) if isinstance(name, str) else None
        if not isinstance(name, str):
            _report(f"a tag {tag!r} without a name skipped")
        elif point is None:
            _report(f"no key point named {name!r}, tag {tag!r} skipped")
        elif tag in _COUNTED:
            point[tag] = point.get(tag, 0) + 1
        elif tag != "neutral":
            _report(f"unknown tag {tag!r} for {name!r} skipped")
    return playbook


def _is_point(entry: Any) -> TypeGuard[dict[str, Any]]:
    """Files of an older form hold bare texts, which have no name and cannot be tagged."""
    return isinstance(entry, dict) and "name" in entry


def _report(problem: str) -> None:
    sys.stderr.write(f"apply_bullet_tags: {problem}\n")
