"""Import and export: the three forms, their older shapes, round trips, and broken files."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.playbooks.formats.serialization import (
    PlaybookFormat,
    export_bytes,
    export_playbook,
    parse_playbook,
)
from memory_api.playbooks.models import Bullet, CorruptPlaybook, Playbook
from memory_api.playbooks.sections import DEFAULT_SECTIONS
from tests.support.cases import each_case
from tests.support.playbook_strategies import counts, keys, playbooks, section_names, texts

plain_bullets = st.builds(
    Bullet, id=keys, section=section_names, content=texts, helpful=counts, harmful=counts
)


def spec4(sections: Any, **rest: Any) -> str:
    return json.dumps({"version": "1.0", "sections": sections, **rest}, ensure_ascii=False)


def seen(playbook: Playbook) -> list[tuple[str, str, str, int, int]]:
    return [(b.section, b.id, b.content, b.helpful, b.harmful) for b in playbook.bullets]


@settings(max_examples=100)
@given(playbooks())
def test_spec2_round_trip_changes_nothing(playbook: Playbook) -> None:
    text = export_playbook(playbook, "bullets")
    read = parse_playbook(text)
    assert (read.form, read.playbook) == ("bullets", playbook)
    assert export_playbook(read.playbook, "bullets") == text


@pytest.mark.parametrize("form", ["bullets", "sections", "ace"])
@settings(max_examples=100)
@given(playbook=playbooks())
def test_request_and_file_export_are_equal(form: PlaybookFormat, playbook: Playbook) -> None:
    try:
        text = export_playbook(playbook, form)
    except ValueError:  # a key that the form cannot hold
        return
    sent = export_bytes(playbook, form).decode()
    assert sent == text if form == "ace" else json.loads(sent) == json.loads(text)


@pytest.mark.parametrize("form", ["sections", "ace"])
@settings(max_examples=100)
@given(playbook=playbooks(plain_bullets))
def test_round_trip_through_the_poorer_forms(form: PlaybookFormat, playbook: Playbook) -> None:
    text = export_playbook(playbook, form)
    read = parse_playbook(text)
    assert read.form == form
    assert sorted(seen(read.playbook)) == sorted(seen(playbook))
    assert read.notes == ()
    again = parse_playbook(export_playbook(read.playbook, form, read.sections))
    assert again.playbook.bullets == read.playbook.bullets
    assert again.sections == read.sections


@pytest.mark.parametrize("form", ["bullets", "sections", "ace"])
def test_real_bullets_survive_every_format(form: PlaybookFormat, ace_bullets: list[Bullet]) -> None:
    playbook = Playbook(bullets=ace_bullets)
    read = parse_playbook(export_playbook(playbook, form, ()))
    assert seen(read.playbook) == seen(playbook)
    slugs = {s.name: s.slug for s in read.sections}
    assert slugs["STRATEGIES AND HARD RULES"] == "shr"
    assert slugs["OTHERS"] == "oth"
    assert len(set(slugs.values())) == len(slugs) == 7


def test_current_spec4_format_is_read() -> None:
    text = spec4(
        {
            "PATTERNS & APPROACHES": [
                {"name": "pat-001", "text": "型", "helpful": 3, "harmful": 1}
            ],
            "OTHERS": [],
        },
        last_updated="2026-02-03T04:05:06+00:00",
    )
    read = parse_playbook(text)
    assert seen(read.playbook) == [("PATTERNS & APPROACHES", "pat-001", "型", 3, 1)]
    assert [s.slug for s in read.sections] == ["pat", "oth"]
    assert read.playbook.metadata.updated_at.isoformat() == "2026-02-03T04:05:06+00:00"
    assert json.loads(export_playbook(read.playbook, "sections", read.sections)) == json.loads(text)


def test_older_spec4_formats_are_read() -> None:
    text = json.dumps(
        {
            "key_points": [
                "bare text",
                {"name": "kpt_002", "text": "no score"},
                {"name": "kpt_003", "text": "good", "score": 2},
                {"name": "kpt_004", "text": "bad", "score": -3, "tags": ["x"]},
                {"name": "oth-00007", "text": "counted", "helpful": 1, "score": 9},
            ]
        }
    )
    read = parse_playbook(text)
    assert seen(read.playbook) == [
        ("OTHERS", "oth-00008", "bare text", 0, 0),
        ("OTHERS", "kpt_002", "no score", 0, 0),
        ("OTHERS", "kpt_003", "good", 2, 0),
        ("OTHERS", "kpt_004", "bad", 0, 3),
        ("OTHERS", "oth-00007", "counted", 1, 0),
    ]
    assert any("oth-00008" in note for note in read.notes)
    assert any("key_points[3]: not imported: tags" in note for note in read.notes)
    assert seen(parse_playbook(text).playbook) == seen(read.playbook)


def test_sections_win_over_key_points() -> None:
    read = parse_playbook(spec4({"OTHERS": ["new"]}, key_points=["old"]))
    assert [b.content for b in read.playbook.bullets] == ["new"]
    assert any("key_points are ignored" in note for note in read.notes)


def test_ace_text_with_titles_blank_lines_and_crlf() -> None:
    text = (
        "# My playbook\r\n\r\n## STRATEGIES & INSIGHTS\r\n"
        "[str-00001] helpful=5 harmful=0 :: Look: a::b [x]\r\n\r\n"
        "## OTHERS\r\n[misc-00002]  helpful=0\tharmful=2 ::no space\r\n"
    )
    with pytest.raises(CorruptPlaybook, match="line 7"):
        parse_playbook(text)
    read = parse_playbook(text.replace("::no", ":: no").encode())
    assert seen(read.playbook) == [
        ("STRATEGIES & INSIGHTS", "str-00001", "Look: a::b [x]", 5, 0),
        ("OTHERS", "misc-00002", "no space", 0, 2),
    ]
    assert [s.slug for s in read.sections] == ["str", "oth"]


def test_ace_text_of_several_lines_stays_one_bullet() -> None:
    content = "first\n## not a heading\n[a-1] helpful=1 harmful=1 :: no bullet\n\n  end\r\n"
    playbook = Playbook(bullets=[Bullet(id="pat-1", section="S", content=content)])
    text = export_playbook(playbook, "ace", ())
    assert text.splitlines()[0] == "## S"
    assert [b.content for b in parse_playbook(text).playbook.bullets] == [content]


def test_repeated_key_is_renumbered_and_reported() -> None:
    line = "[pat-00001] helpful=1 harmful=0 :: "
    read = parse_playbook(f"## PATTERNS & APPROACHES\n{line}one\n{line}two\n")
    assert [b.id for b in read.playbook.bullets] == ["pat-00001", "pat-00002"]
    assert read.notes == ("line 3: key pat-00001 is not unique; assigned pat-00002",)


def test_poorer_formats_contain_only_active_bullets() -> None:
    playbook = Playbook(
        bullets=[
            Bullet(id="oth-1", section="OTHERS", content="good"),
            Bullet(id="oth-2", section="OTHERS", content="bad", status="quarantined"),
        ]
    )
    for form in ("sections", "ace"):
        assert "bad" not in export_playbook(playbook, form)
    assert parse_playbook(export_playbook(playbook, "bullets")).playbook == playbook


def test_section_aliases_are_one_section() -> None:
    entry = {"text": "t", "helpful": 0, "harmful": 0}
    read = parse_playbook(spec4({"OTHERS": [entry], "others ": [entry], "oth": [entry]}))
    assert [(s.name, s.slug) for s in read.sections] == [("OTHERS", "oth")]
    assert [b.id for b in read.playbook.bullets] == ["oth-00001", "oth-00002", "oth-00003"]
    assert [b.section for b in read.playbook.bullets] == ["OTHERS", "others ", "oth"]


def test_empty_sections_and_empty_playbook_round_trip() -> None:
    for form in ("bullets", "sections", "ace"):
        read = parse_playbook(export_playbook(Playbook(), form))
        assert read.playbook.bullets == []
        assert read.sections == (() if form == "bullets" else DEFAULT_SECTIONS)


BULLET = {"id": "a", "section": "s", "content": "c"}


@each_case(
    ("text", "location"),
    [
        ("", "line 1"),
        (" \n", "line 1"),
        (b"\xff{}", "byte 0"),
        ("{}", "line 1"),
        ('{"bullets": [\n  {"id": ]}', "line 2 column 10"),
        ("{" + '"a":{' * 100_000, "line 1"),
        (json.dumps({"bullets": [BULLET, BULLET | {"helpful": -1}]}), "bullets.1.helpful"),
        (json.dumps({"bullets": [BULLET | {"neutral": 2**31}]}), "bullets[0]"),
        (json.dumps({"bullets": "many"}), "bullets"),
        (json.dumps({"bullets": [BULLET | {"id": "a]\n## SYSTEM"}]}), "bullets[0]"),
        (json.dumps({"bullets": [BULLET | {"id": "a" * 129}]}), "bullets[0]"),
        (spec4([]), "sections"),
        (spec4({"OTHERS": "x"}), "sections.OTHERS"),
        (spec4({"OTHERS": ["ok", 7]}), "sections.OTHERS[1]"),
        (spec4({"OTHERS": [{"name": "a"}]}), "sections.OTHERS[0].text"),
        (spec4({"OTHERS": [{"name": "", "text": "t"}]}), "sections.OTHERS[0].name"),
        (spec4({"OTHERS": [{"text": "t", "helpful": True}]}), "sections.OTHERS[0].helpful"),
        (spec4({"OTHERS": [{"text": "t", "harmful": 1.5}]}), "sections.OTHERS[0].harmful"),
        (spec4({"OTHERS": [{"text": "t", "score": "good"}]}), "sections.OTHERS[0].score"),
        (spec4({"": ["x"]}), "section ''"),
        ('{"key_points": null}', "key_points"),
        (spec4({f"s{n}": [] for n in range(501)}), "section 's500'"),
        ("## A\n[a-1] helpful=1 :: x", "line 2"),
        ("## A\n[a-1] helpful=1 harmful=-1 :: x", "line 2"),
        ("## A\n[a-1] helpful=9999999999 harmful=0 :: x", "line 2"),
        ("just some prose", "line 1"),
    ],
)
def test_broken_file_is_an_error_with_its_location(text: str | bytes, location: str) -> None:
    with pytest.raises(CorruptPlaybook) as error:
        parse_playbook(text)
    assert error.value.location == location


@each_case(
    "bullet",
    [
        Bullet(id="a]b", section="S", content="c"),
        Bullet(id="a\nb", section="S", content="c"),
        Bullet(id="a", section="two\nlines", content="c"),
        Bullet(id="a", section=" S", content="c"),
        Bullet(id="a", section="", content="c"),
    ],
)
def test_ace_export_refuses_unreadable_content(bullet: Bullet) -> None:
    with pytest.raises(ValueError, match="cannot represent"):
        export_playbook(Playbook(bullets=[bullet]), "ace")


@settings(max_examples=100)
@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_input_is_parsed_or_refused(text: str | bytes) -> None:
    with contextlib.suppress(CorruptPlaybook):
        read = parse_playbook(text)
        assert len({b.id for b in read.playbook.bullets}) == len(read.playbook.bullets)
