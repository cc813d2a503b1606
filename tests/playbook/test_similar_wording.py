"""Near-duplicates by wording: the measure, and that the short cut finds what comparing all with all
finds.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.memory_api.playbook.schemas import Bullet
from apps.memory_api.playbook.similar import near_duplicates, similar_to, wording_similarity

some_texts = st.lists(
    st.sampled_from(["retry", "the", "call", "once", "注文", "確認", "!", "Retry"]), max_size=6
).map(" ".join)


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [
        ("Retry once!", "once, RETRY", 1.0),
        ("ＲＥＴＲＹ　once", "retry once", 1.0),
        ("a a b", "a b b", 4 / 6),
        ("注文を確認", "注文を確認する", 10 / 12),
        ("cat", "dog", 0.0),
        ("", "", 1.0),
        ("!!", "??", 0.0),
        ("", "a", 0.0),
    ],
)
def test_the_measure(a: str, b: str, score: float) -> None:
    assert wording_similarity(a, b) == pytest.approx(score)


@settings(max_examples=200)
@given(some_texts, some_texts)
def test_the_measure_is_symmetric_and_bounded(a: str, b: str) -> None:
    assert 0.0 <= wording_similarity(a, b) == wording_similarity(b, a) <= 1.0
    assert wording_similarity(a, a) == 1.0


@settings(max_examples=200)
@given(st.lists(some_texts, max_size=8), st.sampled_from([0.05, 0.3, 0.5, 2 / 3, 0.8, 0.9, 1.0]))
def test_the_short_cut_misses_nothing(texts: list[str], threshold: float) -> None:
    named = {str(n): text for n, text in enumerate(texts)}
    expected = {
        (a, b): wording_similarity(named[a], named[b])
        for a, b in combinations(named, 2)
        if wording_similarity(named[a], named[b]) >= threshold
    }
    pairs = near_duplicates(named, threshold)
    assert {(p.first, p.second): p.score for p in pairs} == expected
    assert [p.score for p in pairs] == sorted((p.score for p in pairs), reverse=True)


def test_a_pair_says_which_words_differ() -> None:
    texts = {
        "a": "Find the most played song of the album",
        "b": "Find the least played song of the album",
    }
    [pair] = near_duplicates(texts, 0.8)
    assert (pair.only_first, pair.only_second) == (("most",), ("least",))


def test_one_text_against_many() -> None:
    others = {"x": "ask for the order", "y": "Ask for the order number", "z": "wait"}
    assert similar_to("ask for the order number", others, 0.5) == [
        ("y", 1.0),
        ("x", pytest.approx(8 / 9)),
    ]


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, float("nan")])
def test_a_threshold_that_means_nothing_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates({}, threshold)


def test_duplicates_among_real_bullets(ace_bullets: list[Bullet]) -> None:
    texts = {bullet.id: bullet.content for bullet in ace_bullets}
    pairs = near_duplicates(texts, 0.9)
    assert {(p.first, p.second) for p in pairs} == {
        (a, b) for a, b in combinations(texts, 2) if wording_similarity(texts[a], texts[b]) >= 0.9
    }
    assert pairs[0].score == 1.0
