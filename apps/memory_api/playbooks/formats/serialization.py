"""Parses and exports playbooks: S2's JSON (`bullets`), S4's playbook.json (`sections`) and ACE's
text.

A parsed export equals the playbook except for times, as far as the format has the fields:
`sections` and `ace` contain only active bullets, with section, key, content and two counters, and
`sections` with `when_to_use`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_core import to_json
from typing_extensions import TypeAliasType

from memory_api.core.json_input import JSON_LIMITS, have_too_many_values
from memory_api.playbooks.formats.document import decode, parse_object, to_playbook
from memory_api.playbooks.formats.section_forms import (
    ParsedEntries,
    ParsedEntry,
    format_ace,
    format_spec4,
    parse_ace,
    parse_spec4,
)
from memory_api.playbooks.models import (
    LEGACY_SLUG,
    Bullet,
    CorruptPlaybook,
    Playbook,
    PlaybookMetadata,
    parse_key,
)
from memory_api.playbooks.sections import (
    DEFAULT_SECTIONS,
    SLUG,
    SectionDefinition,
    find_section,
    normalize_section_name,
    unique_slugs,
)
from memory_api.playbooks.state import (
    MAX_KEY_LENGTH,
    is_valid_key,
    next_key,
    raise_counters,
)

PlaybookFormat = TypeAliasType("PlaybookFormat", Literal["bullets", "sections", "ace"])
MAX_COUNT = 2**31 - 1
MAX_SECTIONS = 500
MAX_LINES = 500_000
"""Of ACE's text."""


@dataclass(frozen=True)
class ParsedPlaybook:
    """A parsed file. `sections` are those of the file, in its order. `notes` list what was not
    imported and which keys were assigned.
    """

    playbook: Playbook
    form: PlaybookFormat
    sections: tuple[SectionDefinition, ...]
    notes: tuple[str, ...] = ()


def parse_playbook(
    text: str | bytes, sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS
) -> ParsedPlaybook:
    """Parses any of the three formats. Sections that `sections` defines get their slug from it,
    others from their keys or name.

    An entry without a key, and one with a key that another entry has, gets a new key with a number
    above all others. Raises CorruptPlaybook, with the location.
    """
    form, data = _detect_format(decode(text))
    if form == "bullets":
        return _parse_spec2(cast("Mapping[str, Any]", data), sections)
    parsed = parse_ace(data) if isinstance(data, str) else parse_spec4(data)
    return _to_playbook(form, parsed, sections)


def export_playbook(
    playbook: Playbook,
    form: PlaybookFormat,
    sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS,
) -> str:
    """The playbook as text. `sections` and `ace` list these sections first, also empty ones."""
    data = _export(playbook, form, sections)
    if isinstance(data, str):
        return data
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def export_bytes(
    playbook: Playbook,
    form: PlaybookFormat,
    sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS,
) -> bytes:
    """`export_playbook` as UTF-8, with compact JSON. Makes fewer copies of a large playbook."""
    data = _export(playbook, form, sections)
    return data.encode() if isinstance(data, str) else to_json(data)


def _export(
    playbook: Playbook, form: PlaybookFormat, sections: Sequence[SectionDefinition]
) -> str | dict[str, Any]:
    """ACE's text, or the JSON of the other forms."""
    if form == "bullets":
        return playbook.to_document()
    groups = _group_by_section(playbook, sections)
    return format_ace(groups) if form == "ace" else format_spec4(groups, playbook)


def _detect_format(text: str) -> tuple[PlaybookFormat, str | Mapping[str, Any]]:
    """The format, with the parsed JSON object or, for ACE, the text. Raises CorruptPlaybook."""
    has_too_many_values = have_too_many_values([text.encode(errors="replace")])
    if not text.lstrip().startswith("{"):
        if not has_too_many_values and _is_json(text):
            raise CorruptPlaybook("line 1", "JSON, but not an object")
        if text.count("\n") > MAX_LINES:
            raise CorruptPlaybook(f"line {MAX_LINES + 1}", f"more than {MAX_LINES:,} lines")
        return "ace", text
    if has_too_many_values:
        raise CorruptPlaybook("line 1", f"JSON with more than {JSON_LIMITS}")
    data = parse_object(text)
    if "bullets" in data:
        return "bullets", data
    if "sections" in data or "key_points" in data:
        return "sections", data
    raise CorruptPlaybook("line 1", "not a playbook: 'bullets' is required.")


def _is_json(text: str) -> bool:
    """Whether a text that is not an object is other JSON: a list, a number, null."""
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


def _parse_spec2(data: Mapping[str, Any], known: Sequence[SectionDefinition]) -> ParsedPlaybook:
    fields = {name: data[name] for name in ("metadata", "bullets") if name in data}
    playbook = to_playbook(fields)
    entries = [
        ParsedEntry(f"bullets[{i}]", b.section, b.id) for i, b in enumerate(playbook.bullets)
    ]
    for entry, bullet in zip(entries, playbook.bullets, strict=True):
        _check_counts(entry.location, bullet.helpful, bullet.harmful, bullet.neutral)
    sections = _define_sections([b.section for b in playbook.bullets], entries, known)
    keys, notes = _assign_keys(entries, sections)
    playbook.bullets = [
        bullet.model_copy(update={"id": key})
        for bullet, key in zip(playbook.bullets, keys, strict=True)
    ]
    ignored = [f"not imported: {name}" for name in data if name not in fields]
    return ParsedPlaybook(playbook, "bullets", sections, (*ignored, *notes))


def _to_playbook(
    form: PlaybookFormat, parsed: ParsedEntries, known: Sequence[SectionDefinition]
) -> ParsedPlaybook:
    names = [*parsed.section_names, *(entry.section for entry in parsed.entries)]
    sections = _define_sections(names, parsed.entries, known)
    keys, notes = _assign_keys(parsed.entries, sections)
    bullets: list[Bullet] = []
    for entry, key in zip(parsed.entries, keys, strict=True):
        _check_counts(entry.location, entry.helpful, entry.harmful)
        fields: dict[str, Any] = {
            "id": key,
            "section": entry.section,
            "content": entry.content,
            "helpful": entry.helpful,
            "harmful": entry.harmful,
        }
        if entry.when_to_use is not None:
            fields["when_to_use"] = entry.when_to_use
        bullets.append(Bullet.model_validate(fields))
    time = parsed.updated_at
    times = {} if time is None else {"created_at": time, "updated_at": time}
    metadata = PlaybookMetadata.model_validate(times)
    playbook = Playbook(metadata=metadata, bullets=bullets)
    return ParsedPlaybook(playbook, form, sections, (*parsed.notes, *notes))


def _check_counts(location: str, *counts: int) -> None:
    if max(counts) > MAX_COUNT:
        raise CorruptPlaybook(location, f"a counter is above {MAX_COUNT}")


def _define_sections(
    names: Sequence[str], entries: Sequence[ParsedEntry], known: Sequence[SectionDefinition]
) -> tuple[SectionDefinition, ...]:
    """One definition per named section: the known one, or a new one with the most frequent slug of
    its keys.
    """
    slugs: dict[str, Counter[str]] = {}
    for entry in entries:
        counts = slugs.setdefault(normalize_section_name(entry.section), Counter())
        if parsed := parse_key(entry.key or ""):
            counts[parsed[0]] += 1
    sections: dict[str, SectionDefinition] = {}
    for name in dict.fromkeys(names):
        counts = slugs.get(normalize_section_name(name), Counter())
        try:
            section = find_section(known, name) or _new_section(name, counts)
        except ValidationError as error:
            raise CorruptPlaybook(f"section {name!r}", "not a valid section name") from error
        sections.setdefault(normalize_section_name(section.name), section)
        if len(sections) > MAX_SECTIONS:
            raise CorruptPlaybook(f"section {name!r}", f"more than {MAX_SECTIONS} sections")
    return unique_slugs(sections.values())


def _new_section(name: str, slug_counts: Counter[str]) -> SectionDefinition:
    for slug, _ in slug_counts.most_common():
        if slug != LEGACY_SLUG and SLUG.fullmatch(slug):
            return SectionDefinition(name=name, slug=slug)
    return SectionDefinition(name=name)


def _assign_keys(
    entries: Sequence[ParsedEntry], sections: Sequence[SectionDefinition]
) -> tuple[list[str], list[str]]:
    """The key of each entry, and a note for each assigned key. Raises CorruptPlaybook."""
    counters = raise_counters({}, [entry.key for entry in entries if entry.key])
    taken: set[str] = {entry.key for entry in entries if entry.key}
    seen: set[str] = set()
    keys: list[str] = []
    notes: list[str] = []
    for entry in entries:
        key = entry.key
        if key and not is_valid_key(key):
            raise CorruptPlaybook(entry.location, f"not a valid key: {key[:MAX_KEY_LENGTH]!r}")
        if key is None or key in seen:
            section = find_section(sections, entry.section)
            slug = section.slug if section else DEFAULT_SECTIONS[-1].slug
            key, counters[slug] = next_key(slug, counters.get(slug, 0), taken)
            why = f"key {entry.key} is not unique" if entry.key else "no key"
            notes.append(f"{entry.location}: {why}; assigned {key}")
            taken.add(key)
        seen.add(key)
        keys.append(key)
    return keys, notes


def _group_by_section(
    playbook: Playbook, sections: Sequence[SectionDefinition]
) -> list[tuple[str, list[Bullet]]]:
    """Active bullets by section: first the given sections, in the spelling of the bullets, then the
    others.
    """
    groups: dict[str, list[Bullet]] = {}
    spellings: dict[str, dict[str, None]] = {}
    for bullet in playbook.bullets:
        spellings.setdefault(normalize_section_name(bullet.section), {})[bullet.section] = None
    for section in sections:
        names = spellings.get(normalize_section_name(section.name), {section.name: None})
        groups |= {name: [] for name in names if name not in groups}
    for bullet in playbook.bullets:
        if bullet.status == "active":
            groups.setdefault(bullet.section, []).append(bullet)
    return list(groups.items())
