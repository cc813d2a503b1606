"""Spec 4's apply_bullet_tags: scenarios 004-02 and 006, invariants 003 and 004."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.library.transcript_reflector import apply_bullet_tags
from memory_api.playbooks.retrieval.prompt_block import format_playbook
from tests.support.cases import each_case


def tag(name: Any, value: Any) -> dict[str, Any]:
    return {"name": name, "tag": value, "rationale": "seen"}


def playbook() -> dict[str, Any]:
    return {
        "version": "1.0",
        "sections": {
            "PATTERNS & APPROACHES": [
                {"name": "pat-001", "text": "use types", "helpful": 3, "harmful": 1}
            ],
            "OTHERS": [{"name": "oth-001", "text": "old tip", "helpful": 0, "harmful": 0}],
        },
    }


def counters(book: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {e["name"]: (e["helpful"], e["harmful"]) for es in book["sections"].values() for e in es}


def test_scn_refl_006_01_counters_are_incremented_across_sections() -> None:
    book = playbook()
    returned = apply_bullet_tags(book, [tag("pat-001", "helpful"), tag("oth-001", "harmful")])
    assert returned is book
    assert counters(book) == {"pat-001": (4, 1), "oth-001": (0, 1)}


@each_case("counter", ["3", 3.0, -1, None, True, [1]])
def test_malformed_counter_is_kept_and_reported(
    counter: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    book = playbook()
    book["sections"]["OTHERS"][0]["helpful"] = counter
    before = copy.deepcopy(book)
    apply_bullet_tags(book, [tag("oth-001", "helpful")])
    assert book == before
    assert type(book["sections"]["OTHERS"][0]["helpful"]) is type(counter)
    report = capsys.readouterr().err
    assert "oth-001" in report
    assert repr(counter) in report
    apply_bullet_tags(book, [tag("oth-001", "harmful"), tag("pat-001", "helpful")])
    assert book["sections"]["OTHERS"][0]["harmful"] == 1
    assert book["sections"]["OTHERS"][0]["helpful"] == counter
    assert book["sections"]["PATTERNS & APPROACHES"][0]["helpful"] == 4


@each_case("score", ["3", float("inf"), None])
def test_malformed_score_is_kept_and_reported(
    score: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    book = {"key_points": [{"name": "kpt_001", "text": "a", "score": score}]}
    before = copy.deepcopy(book)
    assert apply_bullet_tags(book, [tag("kpt_001", "helpful")]) == before
    assert repr(score) in capsys.readouterr().err


def test_scn_refl_006_02_neutral_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    book = playbook()
    apply_bullet_tags(book, [tag("pat-001", "neutral")])
    assert book == playbook()
    assert capsys.readouterr().err == ""


def test_scn_refl_004_02_unknown_bullet_is_reported_and_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert apply_bullet_tags(playbook(), [tag("pat-999", "helpful")]) == playbook()
    assert "pat-999" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["great", None, ["helpful"], "help ful"])
def test_unknown_tag_is_reported_and_skipped(
    value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply_bullet_tags(playbook(), [tag("pat-001", value)]) == playbook()
    assert "pat-001" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["Helpful", "HELPFUL", " helpful\n"])
def test_tag_is_read_in_any_case(value: str) -> None:
    book = apply_bullet_tags(playbook(), [tag("pat-001", value)])
    assert counters(book)["pat-001"] == (4, 1)


def test_flat_playbook_of_older_versions_is_counted() -> None:
    book: dict[str, Any] = {
        "key_points": [
            "a bare text",
            {"name": "kpt_001", "text": "old", "score": -2},
            {"name": "oth-004", "text": "named"},
            "another text",
        ]
    }
    shown = format_playbook(book, "{key_points}")
    assert shown.splitlines() == [
        "## OTHERS",
        "[oth-005] helpful=0 harmful=0 :: a bare text",
        "[kpt_001] helpful=0 harmful=2 :: old",
        "[oth-004] helpful=0 harmful=0 :: named",
        "[oth-006] helpful=0 harmful=0 :: another text",
    ]
    tags = [tag("oth-005", "helpful"), tag("oth-005", "helpful"), tag("kpt_001", "harmful")]
    assert apply_bullet_tags(book, tags) is book
    assert book["key_points"] == [
        {"name": "oth-005", "text": "a bare text", "helpful": 2, "harmful": 0},
        {"name": "kpt_001", "text": "old", "helpful": 0, "harmful": 3},
        {"name": "oth-004", "text": "named"},
        "another text",
    ]


def test_playbook_of_spec_2_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    bullet = {"id": "shr-00001", "section": "rules", "content": "Count twice.", "helpful": 2}
    book = {"metadata": {}, "bullets": [copy.copy(bullet), {"id": "shr-00002"}]}
    tags = [tag("shr-00001", "helpful"), tag("shr-00001", "harmful"), tag("shr-00002", "helpful")]
    assert apply_bullet_tags(book, tags)["bullets"][0] == bullet | {"helpful": 3, "harmful": 1}
    assert "no key point is named 'shr-00002'" in capsys.readouterr().err


def test_sections_win_over_flat_key_points() -> None:
    book = {"sections": {"OTHERS": ["new"]}, "key_points": ["old"]}
    assert format_playbook(book, "{key_points}").endswith("[oth-001] helpful=0 harmful=0 :: new")


@pytest.mark.parametrize(
    "book",
    [
        {"sections": {"OTHERS": None}},
        {"sections": {"OTHERS": [None, 7, {"name": "a"}, {"text": 3}]}},
        {"sections": None, "key_points": None},
        {"key_points": "text"},
    ],
)
def test_entries_without_text_are_skipped(book: dict[str, Any]) -> None:
    assert format_playbook(book) == ""


def test_score_beside_counters_stays() -> None:
    entry = {"name": "kpt_001", "text": "a", "helpful": 3, "harmful": 1, "score": 5}
    book = {"key_points": [dict(entry)]}
    apply_bullet_tags(book, [{"name": "kpt_001", "tag": "helpful"}])
    assert book["key_points"] == [entry | {"helpful": 4}]


@each_case("score", [0, float("nan"), float("inf"), "3", None])
def test_unusable_score_is_no_verdict(score: Any) -> None:
    book = {"key_points": [{"name": "a-1", "text": "t", "score": score}]}
    assert "helpful=0 harmful=0" in format_playbook(book)


def test_older_entries_without_counters_or_names_are_accepted() -> None:
    book = {"sections": {"OTHERS": ["bare text", {"name": "kpt_001", "text": "t"}]}}
    apply_bullet_tags(book, [tag("kpt_001", "helpful"), tag(None, "helpful")])
    assert book["sections"]["OTHERS"] == [
        "bare text",
        {"name": "kpt_001", "text": "t", "helpful": 1},
    ]
    assert apply_bullet_tags({}, [tag("a", "helpful")]) == {}


# INV-REFL-003: counters only grow, by one.
# INV-REFL-004: each tag counts once a call, and again in a second call.
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["pat-001", "oth-001", "ghost-1"]),
            st.sampled_from(["helpful", "harmful", "neutral", "odd"]),
        )
    )
)
def test_inv_refl_003_and_004_every_tag_counts_once_per_call(tags: list[tuple[str, str]]) -> None:
    book = playbook()
    given_tags = [tag(*t) for t in tags]
    untouched = copy.deepcopy(given_tags)
    for calls in (1, 2):
        apply_bullet_tags(book, given_tags)
        for name, (helpful, harmful) in counters(playbook()).items():
            assert counters(book)[name] == (
                helpful + calls * tags.count((name, "helpful")),
                harmful + calls * tags.count((name, "harmful")),
            )
    assert given_tags == untouched


def test_invalid_tag_is_reported_and_others_count(capsys: pytest.CaptureFixture[str]) -> None:
    book = playbook()
    odd: list[Any] = ["junk", None, 7, {"tag": "helpful"}, tag("pat-001", "helpful")]
    before = counters(playbook())["pat-001"]
    apply_bullet_tags(book, odd)
    assert counters(book)["pat-001"] == (before[0] + 1, before[1])
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    assert "'junk'" in told[0]
    assert "it has no name" in told[3]
