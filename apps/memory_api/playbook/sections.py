"""Sections of a playbook: their names, what belongs in them, and the slug their keys begin with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, Field, ValidationError

MAX_SLUG = 16
SLUG = re.compile(rf"[a-z][a-z0-9]{{0,{MAX_SLUG - 1}}}")
_SMALL_WORDS = {"and", "of", "the", "to", "for", "in", "a", "an", "or", "with"}
_SYNONYMS = {"other": "others"}


class SectionDefinition(BaseModel):
    """One section. `slug` may be left out: it is then derived from the name."""

    name: str = Field(min_length=1, max_length=128, pattern=r"^[^\r\n]+$")
    description: str = ""
    slug: str = Field(default="", pattern=rf"^({SLUG.pattern})?$")

    def model_post_init(self, _context: Any, /) -> None:
        self.slug = self.slug or derive_slug(self.name)


DEFAULT_SECTIONS = (
    SectionDefinition(
        name="PATTERNS & APPROACHES", slug="pat", description="Ways of working that proved right."
    ),
    SectionDefinition(
        name="MISTAKES TO AVOID", slug="mis", description="What went wrong before, and why."
    ),
    SectionDefinition(
        name="USER PREFERENCES", slug="pref", description="How this user wants things done."
    ),
    SectionDefinition(
        name="PROJECT CONTEXT", slug="ctx", description="Facts about the project and its tools."
    ),
    SectionDefinition(name="OTHERS", slug="oth", description="Everything else."),
)
"""Spec 4's five, used where a playbook defines none."""


def normal_name(name: str) -> str:
    """`Strategies & Hard-Rules ` and `strategies_and_hard_rules` are the same section."""
    words = re.sub(r"[\W_]+", "_", name.casefold().replace("&", " and ")).strip("_")
    return _SYNONYMS.get(words, words) or name.strip()


def derive_slug(name: str) -> str:
    """Initials of up to five words, small words aside; the first four letters of a single word."""
    words = re.findall(r"[a-z][a-z0-9]*", name.lower())
    telling = [word for word in words if word not in _SMALL_WORDS] or words
    if not telling:
        return "sec"
    return telling[0][:4] if len(telling) == 1 else "".join(word[0] for word in telling[:5])


def unique_slugs(sections: Iterable[SectionDefinition]) -> tuple[SectionDefinition, ...]:
    """The same sections, where a slug that was taken gets a number: two sections never share a
    counter.
    """
    result: list[SectionDefinition] = []
    taken: set[str] = set()
    for section in sections:
        slug, n = section.slug, 1
        while slug in taken:
            n += 1
            slug = f"{section.slug[: MAX_SLUG - len(str(n))]}{n}"
        taken.add(slug)
        result.append(section.model_copy(update={"slug": slug}))
    return tuple(result)


def with_fallback(sections: Iterable[SectionDefinition]) -> tuple[SectionDefinition, ...]:
    """The sections, with an OTHERS at the end unless one is there."""
    given = tuple(sections)
    if find_section(given, "OTHERS") is None:
        given = (*given, DEFAULT_SECTIONS[-1])
    return unique_slugs(given)


def join_sections(
    first: Iterable[SectionDefinition], then: Iterable[SectionDefinition]
) -> tuple[SectionDefinition, ...]:
    """The first, and of the others those that are not among them by name."""
    given = tuple(first)
    names = {normal_name(section.name) for section in given}
    return unique_slugs([*given, *(s for s in then if normal_name(s.name) not in names)])


def find_section(sections: Iterable[SectionDefinition], name: str) -> SectionDefinition | None:
    """By name, forgiving case, spacing and `&`; else by slug."""
    wanted = normal_name(name)
    by_slug: SectionDefinition | None = None
    for section in sections:
        if normal_name(section.name) == wanted:
            return section
        if section.slug == wanted:
            by_slug = section
    return by_slug


def spellings(
    sections: Iterable[SectionDefinition], names: Iterable[str], wanted: str
) -> list[str]:
    """Those of `names` that are the section `wanted`: its name in any spelling, or its slug."""
    defined = find_section(sections, wanted)
    plain = {normal_name(wanted), normal_name(defined.name if defined else wanted)}
    return [name for name in names if normal_name(name) in plain]


class SectionLoader:
    """Reads sections from YAML: a mapping of playbook name to a list of `{name, description,
    slug?}`.
    """

    def __init__(self, config_path: str | Path = "config/sections.yaml") -> None:
        self.config_path = Path(config_path)

    def load(self, dataset: str) -> list[SectionDefinition]:
        """The sections of one playbook; an unknown one, or no file at all, has none.

        Raises ValueError, naming file and place, when the file is not what it should be.
        """
        return self._sections(dataset, self._read().get(dataset) or [])

    def check(self) -> None:
        """Raises what `load` would for any of the playbooks."""
        for dataset in self._read():
            self.load(dataset)

    def _read(self) -> dict[str, Any]:
        if not self.config_path.exists():
            return {}
        try:
            data: Any = yaml.safe_load(self.config_path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise ValueError(f"{self.config_path}: {error}") from error
        if not isinstance(data, dict | None):
            raise ValueError(f"{self.config_path}: not a mapping of playbooks to sections")
        return cast("dict[str, Any]", data or {})

    def _sections(self, dataset: str, entries: Any) -> list[SectionDefinition]:
        place = f"{self.config_path}: {dataset}"
        if not isinstance(entries, list):
            raise ValueError(f"{place}: not a list of sections")
        try:
            sections = [SectionDefinition.model_validate(e) for e in cast("list[Any]", entries)]
        except ValidationError as error:
            raise ValueError(f"{place}: {error}") from error
        if len({section.slug for section in sections}) < len(sections):
            raise ValueError(f"{place}: two sections share a slug; give one of them `slug:`")
        return sections
