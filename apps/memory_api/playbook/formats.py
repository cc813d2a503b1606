"""Playbooks as text, in and out: spec 2's JSON, spec 4's playbook.json with its older forms, and
ACE's lines.

Reading a text that was written here gives the same playbook again, times aside, as far as the form
has the fields: spec 4 and ACE carry section, key, text and two counters, and only the bullets that
are active.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import ValidationError
from pydantic_core import to_json

from apps.memory_api.playbook.ace import read_ace, write_ace
from apps.memory_api.playbook.found import Findings, Found
from apps.memory_api.playbook.keys import LEGACY_SLUG, MAX_KEY, is_key, lift, next_key, parse_key
from apps.memory_api.playbook.schemas import Bullet, CorruptPlaybook, Playbook, PlaybookMetadata
from apps.memory_api.playbook.sections import (
    DEFAULT_SECTIONS,
    SLUG,
    SectionDefinition,
    find_section,
    normal_name,
    unique_slugs,
)
from apps.memory_api.playbook.spec4 import read_spec4, write_spec4

Form = Literal["spec2", "spec4", "ace"]
MAX_COUNT = 2**31 - 1
MAX_SECTIONS = 500


@dataclass(frozen=True)
class Imported:
    """A playbook that was read. `sections` are those of the text, in its order; `notes` say what
    was not kept or made up.
    """

    playbook: Playbook
    form: Form
    sections: tuple[SectionDefinition, ...]
    notes: tuple[str, ...] = ()


def detect_form(text: str | bytes) -> Form:
    """Raises CorruptPlaybook when it is none of the three."""
    return _recognise(_decode(text))[0]


def import_playbook(
    text: str | bytes, sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS
) -> Imported:
    """Reads any of the three forms. `sections` gives slugs to sections it knows; others get one
    from their keys or name.

    An entry without a key, and the second of two with the same key, get a new one, above all
    numbers in the text. Raises CorruptPlaybook, which names the place.
    """
    form, data = _recognise(_decode(text))
    if form == "spec2":
        return _import_spec2(cast("Mapping[str, Any]", data), sections)
    found = read_ace(data) if isinstance(data, str) else read_spec4(data)
    return _import_found(form, found, sections)


def export_playbook(
    playbook: Playbook, form: Form, sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS
) -> str:
    """The playbook as text; spec 4 and ACE show these sections first, empty ones too."""
    data = _exported(playbook, form, sections)
    if isinstance(data, str):
        return data
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"


def export_bytes(
    playbook: Playbook, form: Form, sections: Sequence[SectionDefinition] = DEFAULT_SECTIONS
) -> bytes:
    """The same for sending: UTF-8, JSON without spaces. A large one is copied less."""
    data = _exported(playbook, form, sections)
    return data.encode() if isinstance(data, str) else to_json(data)


def _exported(
    playbook: Playbook, form: Form, sections: Sequence[SectionDefinition]
) -> str | dict[str, Any]:
    """ACE's text, or the JSON of the other forms."""
    if form == "spec2":
        return playbook.document()
    groups = _by_section(playbook, sections)
    return write_ace(groups) if form == "ace" else write_spec4(groups, playbook)


def _decode(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorruptPlaybook(f"byte {error.start}", "not UTF-8") from error
    return text.removeprefix("\ufeff")


def _recognise(text: str) -> tuple[Form, str | Mapping[str, Any]]:
    """The form, and the JSON object that was read to find out, or the text."""
    if not text.strip():
        raise CorruptPlaybook("line 1", "there is nothing in it")
    if not text.lstrip().startswith("{"):
        if _is_json(text):
            raise CorruptPlaybook("line 1", "JSON, but not an object")
        return "ace", text
    try:
        data = cast("dict[str, Any]", json.loads(text))
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise CorruptPlaybook(place, f"not JSON: {error.msg}") from error
    except (RecursionError, ValueError) as error:
        raise CorruptPlaybook("line 1", f"not JSON that can be read: {error}") from error
    if "bullets" in data:
        return "spec2", data
    if "sections" in data or "key_points" in data:
        return "spec4", data
    raise CorruptPlaybook("line 1", "none of 'bullets', 'sections' and 'key_points' is in it")


def _is_json(text: str) -> bool:
    """Whether a text that is no object is JSON all the same: a list, a number, null."""
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


def _import_spec2(data: Mapping[str, Any], known: Sequence[SectionDefinition]) -> Imported:
    given = {name: data[name] for name in ("metadata", "bullets") if name in data}
    try:
        playbook = Playbook.model_validate(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise CorruptPlaybook(".".join(map(str, problem["loc"])), problem["msg"]) from error
    entries = [Found(f"bullets[{n}]", b.section, b.id) for n, b in enumerate(playbook.bullets)]
    for entry, bullet in zip(entries, playbook.bullets, strict=True):
        _check_counts(entry.place, bullet.helpful, bullet.harmful, bullet.neutral)
    sections = _define([b.section for b in playbook.bullets], entries, known)
    keys, notes = _assign_keys(entries, sections)
    playbook.bullets = [
        bullet.model_copy(update={"id": key})
        for bullet, key in zip(playbook.bullets, keys, strict=True)
    ]
    dropped = [f"not kept: {name}" for name in data if name not in given]
    return Imported(playbook, "spec2", sections, (*dropped, *notes))


def _import_found(form: Form, found: Findings, known: Sequence[SectionDefinition]) -> Imported:
    names = [*found.section_names, *(entry.section for entry in found.entries)]
    sections = _define(names, found.entries, known)
    keys, notes = _assign_keys(found.entries, sections)
    bullets: list[Bullet] = []
    for entry, key in zip(found.entries, keys, strict=True):
        _check_counts(entry.place, entry.helpful, entry.harmful)
        bullets.append(
            Bullet(
                id=key,
                section=entry.section,
                content=entry.content,
                helpful=entry.helpful,
                harmful=entry.harmful,
            )
        )
    times = {"created_at": found.updated_at, "updated_at": found.updated_at}
    metadata = PlaybookMetadata.model_validate({k: t for k, t in times.items() if t is not None})
    playbook = Playbook(metadata=metadata, bullets=bullets)
    return Imported(playbook, form, sections, (*found.notes, *notes))


def _check_counts(place: str, *counts: int) -> None:
    if max(counts) > MAX_COUNT:
        raise CorruptPlaybook(place, f"a counter is above {MAX_COUNT}")


def _define(
    names: Sequence[str], entries: Sequence[Found], known: Sequence[SectionDefinition]
) -> tuple[SectionDefinition, ...]:
    """One definition per section named: the known one; else with the slug that most of its keys
    begin with.
    """
    slugs: dict[str, Counter[str]] = {}
    for entry in entries:
        used = slugs.setdefault(normal_name(entry.section), Counter())
        if parsed := parse_key(entry.key or ""):
            used[parsed[0]] += 1
    sections: dict[str, SectionDefinition] = {}
    for name in dict.fromkeys(names):
        used = slugs.get(normal_name(name), Counter())
        try:
            found = find_section(known, name) or _new_section(name, used)
        except ValidationError as error:
            raise CorruptPlaybook(f"section {name!r}", "not a name for a section") from error
        sections.setdefault(normal_name(found.name), found)
        if len(sections) > MAX_SECTIONS:
            raise CorruptPlaybook(f"section {name!r}", f"more than {MAX_SECTIONS} sections")
    return unique_slugs(sections.values())


def _new_section(name: str, used: Counter[str]) -> SectionDefinition:
    for slug, _ in used.most_common():
        if slug != LEGACY_SLUG and SLUG.fullmatch(slug):
            return SectionDefinition(name=name, slug=slug)
    return SectionDefinition(name=name)


def _assign_keys(
    entries: Sequence[Found], sections: Sequence[SectionDefinition]
) -> tuple[list[str], list[str]]:
    """The key of each entry, and a note for each that was made up."""
    numbers = lift({}, [entry.key for entry in entries if entry.key])
    taken: set[str] = {entry.key for entry in entries if entry.key}
    seen: set[str] = set()
    keys: list[str] = []
    notes: list[str] = []
    for entry in entries:
        key = entry.key
        if key and not is_key(key):
            raise CorruptPlaybook(entry.place, f"not a key: {key[:MAX_KEY]!r}")
        if key is None or key in seen:
            section = find_section(sections, entry.section)
            slug = section.slug if section else DEFAULT_SECTIONS[-1].slug
            key, numbers[slug] = next_key(slug, numbers.get(slug, 0), taken)
            why = f"{entry.key} was taken" if entry.key else "it had no key"
            notes.append(f"{entry.place}: {why}, it is now {key}")
            taken.add(key)
        seen.add(key)
        keys.append(key)
    return keys, notes


def _by_section(
    playbook: Playbook, sections: Sequence[SectionDefinition]
) -> list[tuple[str, list[Bullet]]]:
    """Active bullets by section: the given sections first, spelt as the bullets spell them, then
    the rest.
    """
    groups: dict[str, list[Bullet]] = {}
    spelt: dict[str, dict[str, None]] = {}
    for bullet in playbook.bullets:
        spelt.setdefault(normal_name(bullet.section), {})[bullet.section] = None
    for section in sections:
        names = spelt.get(normal_name(section.name), {section.name: None})
        groups |= {name: [] for name in names if name not in groups}
    for bullet in playbook.bullets:
        if bullet.status == "active":
            groups.setdefault(bullet.section, []).append(bullet)
    return list(groups.items())
