"""Sections of a playbook: name, description, and the slug of their bullet keys.

`SectionLoader` (S2) reads the sections of new playbooks from a YAML file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel, Field, ValidationError

from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path
from memory_api.core.settings import Settings

MAX_SLUG = 16
SLUG = re.compile(rf"[a-z][a-z0-9]{{0,{MAX_SLUG - 1}}}")
_SMALL_WORDS = {"and", "of", "the", "to", "for", "in", "a", "an", "or", "with"}
_SYNONYMS = {"other": "others"}


class SectionDefinition(BaseModel):
    """One section. Without `slug`, it is derived from the name."""

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
"""The five sections of S4, used if a playbook defines none."""


def normalize_section_name(name: str) -> str:
    """One form for all spellings of a name, such as `Hard-Rules & Tips ` and
    `hard_rules_and_tips`.
    """
    normalized = re.sub(r"[\W_]+", "_", name.casefold().replace("&", " and ")).strip("_")
    return _SYNONYMS.get(normalized, normalized) or name.strip()


def derive_slug(name: str) -> str:
    """Initials of up to five words without `_SMALL_WORDS`; the first four letters of a
    single word.
    """
    words = re.findall(r"[a-z][a-z0-9]*", name.lower())
    main_words = [word for word in words if word not in _SMALL_WORDS] or words
    if not main_words:
        return "sec"
    return main_words[0][:4] if len(main_words) == 1 else "".join(w[0] for w in main_words[:5])


def unique_slugs(sections: Iterable[SectionDefinition]) -> tuple[SectionDefinition, ...]:
    """The same sections with unique slugs: a repeated slug gets a number, so that two sections
    never share a key counter.
    """
    result: list[SectionDefinition] = []
    taken: set[str] = set()
    for section in sections:
        slug, number = section.slug, 1
        while slug in taken:
            number += 1
            slug = f"{section.slug[: MAX_SLUG - len(str(number))]}{number}"
        taken.add(slug)
        result.append(section.model_copy(update={"slug": slug}))
    return tuple(result)


def with_fallback(sections: Iterable[SectionDefinition]) -> tuple[SectionDefinition, ...]:
    """The sections, with OTHERS at the end unless they include it."""
    result = tuple(sections)
    if find_section(result, "OTHERS") is None:
        result = (*result, DEFAULT_SECTIONS[-1])
    return unique_slugs(result)


def join_sections(
    first: Iterable[SectionDefinition], second: Iterable[SectionDefinition]
) -> tuple[SectionDefinition, ...]:
    """The first sections, and those of the second with other names."""
    result = tuple(first)
    names = {normalize_section_name(section.name) for section in result}
    added = [section for section in second if normalize_section_name(section.name) not in names]
    return unique_slugs([*result, *added])


def find_section(sections: Iterable[SectionDefinition], name: str) -> SectionDefinition | None:
    """Finds a section by name in any spelling, or else by slug."""
    wanted = normalize_section_name(name)
    by_slug: SectionDefinition | None = None
    for section in sections:
        if normalize_section_name(section.name) == wanted:
            return section
        if section.slug == wanted:
            by_slug = section
    return by_slug


def matching_spellings(
    sections: Iterable[SectionDefinition], names: Iterable[str], wanted: str
) -> list[str]:
    """Those of `names` that are spellings of the section with the name or slug `wanted`."""
    defined = find_section(sections, wanted)
    normalized = {
        normalize_section_name(wanted),
        normalize_section_name(defined.name if defined else wanted),
    }
    return [name for name in names if normalize_section_name(name) in normalized]


def requested_spelling(
    sections: Iterable[SectionDefinition], name: str, section_filter: Iterable[str]
) -> str:
    """The section of a hit as the filter that it passed has written it (S2, property 5)."""
    definitions = tuple(sections)
    return next(
        (each for each in section_filter if matching_spellings(definitions, [name], each)), name
    )


class SectionLoader:
    """Reads sections from a YAML file: playbook name → list of `{name, description, slug?}`."""

    def __init__(self, config_path: str | Path = "config/sections.yaml") -> None:
        self.config_path = Path(config_path)

    def load(self, dataset: str) -> list[SectionDefinition]:
        """The sections of one playbook. An empty list if the file or the playbook is missing.

        Raises ValueError, with file and playbook, for an invalid file.
        """
        return self._sections(dataset, self._read().get(dataset) or [])

    def check(self) -> None:
        """Loads all playbooks of the file. Raises as `load`."""
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
            raise ValueError(
                f"{self.config_path}: the file must map playbook names to lists of sections"
            )
        return cast("dict[str, Any]", data or {})

    def _sections(self, dataset: str, entries: Any) -> list[SectionDefinition]:
        location = f"{self.config_path}: {dataset}"
        if not isinstance(entries, list):
            raise ValueError(f"{location}: must be a list of sections")
        try:
            sections = [SectionDefinition.model_validate(e) for e in cast("list[Any]", entries)]
        except ValidationError as error:
            raise ValueError(f"{location}: {error}") from error
        if len({section.slug for section in sections}) < len(sections):
            raise ValueError(
                f"{location}: two sections have the same slug. Set `slug` of one of them."
            )
        return sections


def initial_sections(settings: Settings, name: str) -> tuple[SectionDefinition, ...]:
    """The sections of a new playbook: those in `HANSEI_SECTIONS_FILE`, or the five of S4. Raises
    ValueError for an invalid file.
    """
    sections = open_section_loader(settings).load(name)
    return with_fallback(sections) if sections else DEFAULT_SECTIONS


def open_section_loader(settings: Settings) -> SectionLoader:
    return SectionLoader(settings.sections_file or packaged_path("config") / "sections.yaml")


def check_section_file(settings: Settings) -> None:
    """Raises `ConfigurationError` if the file of the settings is missing or invalid."""
    file = settings.sections_file
    if file is not None and not file.is_file():
        raise ConfigurationError(f"HANSEI_SECTIONS_FILE: There is no file {file}.")
    try:
        open_section_loader(settings).check()
    except ValueError as error:
        raise ConfigurationError(f"HANSEI_SECTIONS_FILE: {' '.join(str(error).split())}") from error
