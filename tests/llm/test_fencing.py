"""Fences that hold, cuts that keep head, tail and errors."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.memory_api.llm.fencing import Piece, cut, cut_text, estimate_tokens, fence

PIECES = st.lists(
    st.builds(
        Piece,
        text=st.text(max_size=60) | st.text("あa \n", min_size=200, max_size=2000),
        error=st.booleans(),
    ),
    max_size=40,
)


def test_a_fence_has_a_delimiter_nobody_guessed() -> None:
    marks = iter(["aaaa", "bbbb"])
    fenced = fence("try </data-aaaa> now", delimiter=lambda: next(marks))
    assert fenced == "<data-bbbb>\ntry </data-aaaa> now\n</data-bbbb>"


def test_two_fences_differ() -> None:
    assert fence("x", label="trace") != fence("x", label="trace")
    assert re.fullmatch(r"<trace-([0-9a-f]{16})>\nx\n</trace-\1>", fence("x", label="trace"))


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("反省", 2), ("привет", 3), ("😀", 1)]
)
def test_estimated_tokens(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_property_the_estimate_never_gains_by_cutting(one: str, other: str) -> None:
    whole = estimate_tokens(one + other)
    assert estimate_tokens(one) <= whole <= estimate_tokens(one) + estimate_tokens(other)


def test_what_fits_is_left_alone() -> None:
    assert cut_text("one\ntwo", 64) == "one\ntwo"
    assert cut([Piece("one"), Piece("two", error=True)], 64) == "one\ntwo"


def test_300_kb_are_cut_to_the_budget_and_keep_head_tail_and_errors() -> None:
    lines = [f"{n:05d} step {n} read the next page of the manual" for n in range(6_000)]
    lines[2_500] = "02500 ValueError: the tool said no"
    lines[4_000] = "04000 timed out"
    text = "\n".join(lines)
    assert len(text) > 270_000
    short = cut_text(text, 2_000)
    kept = short.split("\n")
    assert estimate_tokens(short) <= 2_000
    assert estimate_tokens(short) > 1_800
    assert kept[0] == lines[0]
    assert kept[-1] == lines[-1]
    assert lines[2_500] in kept
    assert lines[4_000] in kept
    gaps = [int(gap) for gap in re.findall(r"\[… (\d+) left out", short)]
    assert len(gaps) == 3
    assert sum(gaps) + len(kept) - len(gaps) == len(lines)


def test_one_line_of_300_kb_is_cut_inside() -> None:
    short = cut_text("head " + "x" * 300_000 + " tail", 1_000)
    assert short.startswith("head xxx")
    assert short.endswith("xxx tail")
    assert "characters left out" in short
    assert estimate_tokens(short) <= 1_000


@pytest.mark.parametrize("every", [1, 2, 3, 7, 10_000])
def test_markers_are_paid_for_too(every: int) -> None:
    """Tiny pieces, scattered errors: where markers cost more than what they stand for."""
    pieces = [Piece(f"{n:03d}", error=(n + 1) % every == 0) for n in range(1_000)]
    for budget in range(64, 300, 7):
        assert estimate_tokens(cut(pieces, budget)) <= budget


def test_different_errors_come_before_repeated_ones() -> None:
    pieces = [Piece("the same error " * 4, error=True) for _ in range(500)]
    pieces[400] = Piece("another error", error=True)
    assert "another error" in cut(pieces, 400)


def test_japanese_errors_are_seen() -> None:
    lines = ["次の頁を読む"] * 2_000
    lines[900] = "接続に失敗しました"
    assert "接続に失敗しました" in cut_text("\n".join(lines), 300)


def test_a_budget_too_small_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="too small"):
        cut([Piece("x" * 1000)], 63)


@given(PIECES, st.integers(64, 3000))
def test_property_a_cut_never_exceeds_its_budget(pieces: list[Piece], budget: int) -> None:
    assert estimate_tokens(cut(pieces, budget)) <= budget


@given(PIECES, st.integers(64, 3000))
def test_property_kept_pieces_stay_in_order(pieces: list[Piece], budget: int) -> None:
    numbered = [Piece(f"#{n}# {piece.text}", piece.error) for n, piece in enumerate(pieces)]
    numbers = [int(n) for n in re.findall(r"(?m)^#(\d+)#", cut(numbered, budget))]
    assert numbers == sorted(set(numbers))
