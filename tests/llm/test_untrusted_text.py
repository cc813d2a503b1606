"""Fences that hold, cuts that keep head, tail and errors."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_api.llm.untrusted_text import (
    PromptPiece,
    distribute_budget,
    fence_text,
    fit_pieces,
    fit_text,
)
from memory_api.text.terms import estimate_tokens
from tests.support.cases import each_case

PIECES = st.lists(
    st.builds(
        PromptPiece,
        text=st.text(max_size=60) | st.text("あa \n", min_size=200, max_size=2000),
        is_error=st.booleans(),
    ),
    max_size=40,
)


def test_fence_delimiter_is_random() -> None:
    marks = iter(["aaaa", "bbbb"])
    fenced = fence_text("try </data-aaaa> now", delimiter=lambda: next(marks))
    assert fenced == "<data-bbbb>\ntry </data-aaaa> now\n</data-bbbb>"


def test_two_fences_differ() -> None:
    assert fence_text("x", label="trace") != fence_text("x", label="trace")
    assert re.fullmatch(r"<trace-([0-9a-f]{16})>\nx\n</trace-\1>", fence_text("x", label="trace"))


@each_case(
    ("text", "tokens"), [("", 0), ("abcd", 1), ("abcde", 2), ("反省", 2), ("привет", 3), ("😀", 1)]
)
def test_estimated_tokens(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_property_the_estimate_never_gains_by_cutting(one: str, other: str) -> None:
    whole = estimate_tokens(one + other)
    assert estimate_tokens(one) <= whole <= estimate_tokens(one) + estimate_tokens(other)


def test_short_text_is_unchanged() -> None:
    assert fit_text("one\ntwo", 64) == "one\ntwo"
    assert fit_pieces([PromptPiece("one"), PromptPiece("two", is_error=True)], 64) == "one\ntwo"


def test_long_text_is_cut_to_budget_with_head_tail_and_errors() -> None:
    lines = [f"{n:05d} step {n} read the next page of the manual" for n in range(6_000)]
    lines[2_500] = "02500 ValueError: the tool said no"
    lines[4_000] = "04000 timed out"
    text = "\n".join(lines)
    assert len(text) > 270_000
    short = fit_text(text, 2_000)
    kept = short.split("\n")
    assert estimate_tokens(short) <= 2_000
    assert estimate_tokens(short) > 1_800
    assert kept[0] == lines[0]
    assert kept[-1] == lines[-1]
    assert lines[2_500] in kept
    assert lines[4_000] in kept
    gaps = [int(gap) for gap in re.findall(r"\[… (\d+) omitted", short)]
    assert len(gaps) == 3
    assert sum(gaps) + len(kept) - len(gaps) == len(lines)


def test_one_line_of_300_kb_is_cut_inside() -> None:
    short = fit_text("head " + "x" * 300_000 + " tail", 1_000)
    assert short.startswith("head xxx")
    assert short.endswith("xxx tail")
    assert "characters omitted" in short
    assert estimate_tokens(short) <= 1_000


@each_case("every", [1, 2, 3, 7, 10_000])
def test_markers_count_toward_budget(every: int) -> None:
    """Tiny pieces, scattered errors: where markers cost more than what they stand for."""
    pieces = [PromptPiece(f"{n:03d}", is_error=(n + 1) % every == 0) for n in range(1_000)]
    for budget in range(64, 300, 7):
        assert estimate_tokens(fit_pieces(pieces, budget)) <= budget


def test_distinct_errors_come_before_repeated_ones() -> None:
    pieces = [PromptPiece("the same error " * 4, is_error=True) for _ in range(500)]
    pieces[400] = PromptPiece("another error", is_error=True)
    assert "another error" in fit_pieces(pieces, 400)


def test_japanese_errors_are_kept() -> None:
    lines = ["次の頁を読む"] * 2_000
    lines[900] = "接続に失敗しました"
    assert "接続に失敗しました" in fit_text("\n".join(lines), 300)


def test_too_small_budget_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 64"):
        fit_pieces([PromptPiece("x" * 1000)], 63)


@given(PIECES, st.integers(64, 3000))
def test_property_a_cut_never_exceeds_its_budget(pieces: list[PromptPiece], budget: int) -> None:
    assert estimate_tokens(fit_pieces(pieces, budget)) <= budget


@given(PIECES, st.integers(64, 3000))
def test_property_kept_pieces_stay_in_order(pieces: list[PromptPiece], budget: int) -> None:
    numbered = [
        PromptPiece(f"#{n}# {piece.text}", piece.is_error) for n, piece in enumerate(pieces)
    ]
    numbers = [int(n) for n in re.findall(r"(?m)^#(\d+)#", fit_pieces(numbered, budget))]
    assert numbers == sorted(set(numbers))


def test_unused_share_goes_to_the_others() -> None:
    weights = {"a": 1, "b": 1, "c": 2}
    assert distribute_budget(100, {"a": 10, "b": 500, "c": 20}, weights) == {
        "a": 10,
        "b": 70,
        "c": 20,
    }
    assert distribute_budget(100, {"a": 500, "b": 500, "c": 500}, weights) == {
        "a": 25,
        "b": 25,
        "c": 50,
    }
    assert distribute_budget(1000, {"a": 10, "b": 0, "c": 20}, weights) == {
        "a": 10,
        "b": 0,
        "c": 20,
    }


@given(
    st.integers(0, 5000),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3000), max_size=6),
    st.lists(st.integers(1, 12), min_size=6, max_size=6),
)
def test_property_budget_is_respected_and_used(
    budget: int, sizes: dict[str, int], weights: list[int]
) -> None:
    granted = distribute_budget(budget, sizes, dict(zip("abcdef", weights, strict=True)))
    assert all(0 <= granted[name] <= size for name, size in sizes.items())
    assert sum(granted.values()) <= budget
    assert sum(granted.values()) >= min(budget, sum(sizes.values())) - len(sizes)


CITATION = "[pat-00001]"


@given(PIECES, st.integers(0, 39), st.integers(400, 3000))
def test_property_citing_piece_is_never_omitted(
    pieces: list[PromptPiece], position: int, budget: int
) -> None:
    text = "before " * 200 + CITATION + " after" * 200
    pieces.insert(position, PromptPiece(text, citations=(CITATION,)))
    fitted = fit_pieces(pieces, budget)
    assert CITATION in fitted
    assert estimate_tokens(fitted) <= budget
