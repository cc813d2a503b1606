"""The formats that group bullets by section: ACE's text and S4's playbook.json.

ACE: `[id] helpful=H harmful=M :: text`, one bullet per line, under `## SECTION` headings. As an
extension, the further lines of a text with several lines begin with four spaces.

S4: sections of `{name, text, helpful, harmful}`. As an extension, an entry whose bullet has a
condition has `when_to_use`. Older files with plain strings or one score are read too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from memory_api.playbooks.models import Bullet, CorruptPlaybook, Playbook


@dataclass(frozen=True)
class ParsedEntry:
    """One entry. `location` is a line or a JSON path. `key` is None if the entry has none."""

    location: str
    section: str
    key: str | None
    content: str = ""
    helpful: int = 0
    harmful: int = 0
    when_to_use: str | None = None
    """None if the entry does not have the field."""


@dataclass
class ParsedEntries:
    """All entries of a file in their order, the names of its sections, and notes for the user."""

    entries: list[ParsedEntry] = field(default_factory=list[ParsedEntry])
    section_names: list[str] = field(default_factory=list[str])
    updated_at: datetime | None = None
    notes: list[str] = field(default_factory=list[str])


_BULLET = re.compile(
    r"\[([^\]\n]+)\][ \t]+helpful=([0-9]{1,10})[ \t]+harmful=([0-9]{1,10})[ \t]+::(?: (.*))?",
    re.DOTALL,
)
_CONTINUATION_INDENT = "    "
_INVALID_LINE = "neither a bullet (`[id] helpful=H harmful=M :: text`) nor a '## SECTION' heading"


def parse_ace(text: str) -> ParsedEntries:
    """Raises CorruptPlaybook, with its number, for a line that is no bullet, heading or
    blank line.
    """
    parsed = ParsedEntries()
    section = "OTHERS"
    for number, line in _logical_lines(text):
        if match := _BULLET.fullmatch(line):
            key, helpful, harmful, content = match.groups(default="")
            location = f"line {number}"
            entry = ParsedEntry(location, section, key, content, int(helpful), int(harmful))
            parsed.entries.append(entry)
        elif line.startswith("##") and (name := line.lstrip("#").strip()):
            section = name
            parsed.section_names.append(section)
        elif line.startswith("# "):
            parsed.notes.append(f"line {number}: the title is not imported")
        elif line.strip():
            raise CorruptPlaybook(f"line {number}", _INVALID_LINE)
    return parsed


def format_ace(groups: Iterable[tuple[str, list[Bullet]]]) -> str:
    """Raises ValueError for a key or section name that the format cannot represent."""
    lines: list[str] = []
    for section, bullets in groups:
        if not section or section != section.strip() or "\n" in section:
            raise ValueError(f"the ACE format cannot represent the section {section!r}")
        lines += [f"## {section}", *(_format_bullet(bullet) for bullet in bullets), ""]
    return "\n".join(lines)


def _format_bullet(bullet: Bullet) -> str:
    content = bullet.content.replace("\n", f"\n{_CONTINUATION_INDENT}")
    line = f"[{bullet.id}] helpful={bullet.helpful} harmful={bullet.harmful} :: {content}"
    if _BULLET.fullmatch(line) is None or "]" in bullet.id:
        raise ValueError(f"the ACE format cannot represent the key {bullet.id!r} or its counters")
    return line


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines. A bullet and its continuation lines are one line."""
    start, in_bullet = 0, False
    parts: list[str] = []
    for number, line in enumerate(_lines(text), 1):
        if in_bullet and line.startswith(_CONTINUATION_INDENT):
            parts.append(line.removeprefix(_CONTINUATION_INDENT))
            continue
        if parts:
            yield start, "\n".join(parts)
        start, parts, in_bullet = number, [line], _BULLET.fullmatch(line) is not None
    yield start, "\n".join(parts)


def _lines(text: str) -> list[str]:
    """Splits at line feeds only, because other line breaks may be part of a bullet. Removes the CR
    if every line ends with CRLF.
    """
    lines = text.split("\n")
    if len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1]):
        lines = [line.removesuffix("\r") for line in lines]
    return lines


_ENTRY_FIELDS = {"name", "text", "helpful", "harmful", "score", "when_to_use"}


def parse_spec4(data: Mapping[str, Any]) -> ParsedEntries:
    """Parses `sections`, or the flat `key_points` of older files into the section OTHERS.

    Raises CorruptPlaybook, with the JSON path, for a value of the wrong type.
    """
    parsed = ParsedEntries(updated_at=_parse_time(data.get("last_updated")))
    sections: Any = data.get("sections")
    if sections is None:
        sections = {"OTHERS": data.get("key_points")}
        parsed.notes.append("a flat list of key points: all go to OTHERS")
    elif "key_points" in data:
        parsed.notes.append("both sections and key_points: key_points are ignored")
    if not isinstance(sections, Mapping):
        raise CorruptPlaybook("sections", "must be an object")
    for section, entries in cast("Mapping[str, Any]", sections).items():
        location = f"sections.{section}" if "sections" in data else "key_points"
        if not isinstance(entries, list):
            raise CorruptPlaybook(location, "must be a list")
        parsed.section_names.append(section)
        for index, entry in enumerate(cast("list[Any]", entries)):
            parsed.entries.append(_parse_entry(parsed, f"{location}[{index}]", section, entry))
    return parsed


def format_spec4(groups: Iterable[tuple[str, list[Bullet]]], playbook: Playbook) -> dict[str, Any]:
    return {
        "version": "1.0",
        "last_updated": playbook.metadata.updated_at.isoformat(),
        "sections": {
            section: [_format_entry(bullet) for bullet in bullets] for section, bullets in groups
        },
    }


def _format_entry(bullet: Bullet) -> dict[str, Any]:
    entry = {
        "name": bullet.id,
        "text": bullet.content,
        "helpful": bullet.helpful,
        "harmful": bullet.harmful,
    }
    return entry | ({"when_to_use": bullet.when_to_use} if bullet.when_to_use else {})


def _parse_entry(parsed: ParsedEntries, location: str, section: str, entry: Any) -> ParsedEntry:
    if isinstance(entry, str):
        return ParsedEntry(location, section, None, entry)
    if not isinstance(entry, Mapping):
        raise CorruptPlaybook(location, "must be a string or an object")
    fields = cast("Mapping[str, Any]", entry)
    if unknown := sorted(fields.keys() - _ENTRY_FIELDS):
        parsed.notes.append(f"{location}: not imported: {', '.join(unknown)}")
    text, name, when_to_use = (fields.get(key) for key in ("text", "name", "when_to_use"))
    if not isinstance(text, str):
        raise CorruptPlaybook(f"{location}.text", "must be a string")
    if when_to_use is not None and not isinstance(when_to_use, str):
        raise CorruptPlaybook(f"{location}.when_to_use", "must be a string")
    if name is not None and not (isinstance(name, str) and name):
        raise CorruptPlaybook(f"{location}.name", "must be a non-empty string")
    helpful, harmful = _counters(fields, location)
    return ParsedEntry(location, section, name, text, helpful, harmful, when_to_use)


def _counters(fields: Mapping[str, Any], location: str) -> tuple[int, int]:
    """(helpful, harmful). A positive score is helpful, a negative one harmful."""
    if "helpful" in fields or "harmful" in fields:
        helpful, harmful = (
            _count(fields.get(k, 0), f"{location}.{k}") for k in ("helpful", "harmful")
        )
        return helpful, harmful
    score = fields.get("score", 0)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise CorruptPlaybook(f"{location}.score", "must be a number")
    return max(round(score), 0), max(-round(score), 0)


def _count(value: Any, location: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise CorruptPlaybook(location, "must be a non-negative integer")
    return value


def _parse_time(value: Any) -> datetime | None:
    """The time, or None if it cannot be parsed: an invalid time does not reject the file."""
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
