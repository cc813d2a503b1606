"""Similarity in wording."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.text.similarity import wording_similarity
from tests.support.cases import each_case

some_texts = st.lists(
    st.sampled_from(["retry", "the", "call", "once", "注文", "確認", "!", "Retry"]), max_size=6
).map(" ".join)


@each_case(
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
def test_similarity_values(a: str, b: str, score: float) -> None:
    assert wording_similarity(a, b) == pytest.approx(score)


@settings(max_examples=100)
@given(some_texts, some_texts)
def test_similarity_is_symmetric_and_bounded(a: str, b: str) -> None:
    assert 0.0 <= wording_similarity(a, b) == wording_similarity(b, a) <= 1.0
    assert wording_similarity(a, a) == 1.0
