"""Sections: the YAML loader, slugs, names that mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.playbooks.sections import (
    DEFAULT_SECTIONS,
    SLUG,
    SectionDefinition,
    SectionLoader,
    derive_slug,
    find_section,
    join_sections,
    unique_slugs,
    with_fallback,
)
from tests.support.cases import each_case
from tests.support.paths import ROOT


def loader(tmp_path: Path, text: str) -> SectionLoader:
    path = tmp_path / "sections.yaml"
    path.write_text(text, encoding="utf-8")
    return SectionLoader(str(path))


def test_sections_of_a_dataset(tmp_path: Path) -> None:
    text = "qa:\n  - name: 注意点\n    description: 気をつける\n  - {name: hard rules, slug: hr9}\n"
    assert loader(tmp_path, text).load("qa") == [
        SectionDefinition(name="注意点", description="気をつける", slug="sec"),
        SectionDefinition(name="hard rules", slug="hr9"),
    ]


def test_unknown_dataset_empty_file_and_no_file_have_no_sections(tmp_path: Path) -> None:
    assert loader(tmp_path, "qa: []\n").load("other") == []
    assert loader(tmp_path, "").load("qa") == []
    assert SectionLoader(tmp_path / "none.yaml").load("qa") == []


@pytest.mark.parametrize(
    "text",
    [
        "[1",
        "- a list",
        "qa: word",
        "qa: [{description: x}]",
        "qa: [{name: a, slug: 'A B'}]",
        "qa: [{name: a, slug: x}, {name: b, slug: x}]",
    ],
)
def test_invalid_file_error_names_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"sections\.yaml"):
        loader(tmp_path, text).load("qa")


def test_shipped_file_is_valid() -> None:
    sections = SectionLoader(ROOT / "config" / "sections.yaml").load("appworld")
    assert [s.slug for s in sections][:1] == ["shr"]
    assert with_fallback(sections) == tuple(sections)


def test_default_sections() -> None:
    assert [s.slug for s in DEFAULT_SECTIONS] == ["pat", "mis", "pref", "ctx", "oth"]


@each_case(
    ("name", "slug"),
    [
        ("STRATEGIES AND HARD RULES", "shr"),
        ("formulas", "form"),
        ("A B C D E F G", "bcdef"),
        ("the and", "ta"),
        ("注意点", "sec"),
        ("9 lives", "live"),
    ],
)
def test_slugs_from_names(name: str, slug: str) -> None:
    assert derive_slug(name) == slug


def test_joined_sections_keep_the_first_and_their_slugs() -> None:
    found = [
        SectionDefinition(name="others"),
        SectionDefinition(name="Context clues", slug="ctx"),
    ]
    joined = join_sections(DEFAULT_SECTIONS, found)
    assert joined[:5] == DEFAULT_SECTIONS
    assert [(s.name, s.slug) for s in joined[5:]] == [("Context clues", "ctx2")]


@pytest.mark.parametrize("name", ["patterns and approaches", " PATTERNS  &  Approaches ", "pat"])
def test_equivalent_section_names(name: str) -> None:
    assert find_section(DEFAULT_SECTIONS, name) is DEFAULT_SECTIONS[0]
    assert find_section(DEFAULT_SECTIONS, "patterns") is None


def test_fallback_is_added_once_and_with_a_slug_of_its_own() -> None:
    rules = SectionDefinition(name="Other things", slug="oth")
    sections = with_fallback([rules])
    assert [(s.name, s.slug) for s in sections] == [("Other things", "oth"), ("OTHERS", "oth2")]
    assert with_fallback(sections) == sections
    assert len(with_fallback([SectionDefinition(name="Other", slug="x")])) == 1


@settings(max_examples=100)
@given(
    st.lists(
        st.builds(
            SectionDefinition,
            name=st.sampled_from(["a b", "ab", "あ", "x" * 9]),
            slug=st.sampled_from(["", "ab", "ab2", "s" * 16]),
        )
    )
)
def test_slugs_are_made_unique(sections: list[SectionDefinition]) -> None:
    unique = unique_slugs(sections)
    slugs = [section.slug for section in unique]
    assert len(set(slugs)) == len(sections)
    assert all(SLUG.fullmatch(slug) for slug in slugs)
    assert [s.name for s in unique] == [s.name for s in sections]
