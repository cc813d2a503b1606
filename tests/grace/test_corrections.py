"""Which questions are similar enough to share a correction."""

from __future__ import annotations

import pytest

from apps.memory_api.grace.corrections import (
    MIN_SIMILARITY,
    Correction,
    choose_correction,
    question_similarity,
)

KNOWN = "Prior to Manning, who was the oldest quarterback in a Super Bowl?"


@pytest.mark.parametrize(
    ("question", "is_similar"),
    [
        (KNOWN.lower(), True),
        ("Which quarterback was the oldest one in a Super Bowl, prior to Manning?", True),
        ("Who was the oldest quarterback in a Super Bowl?", False),
        ("Prior to Manning, who was the oldest quarterback in Super Bowl 50?", False),
        ("Who won the first Super Bowl?", False),
        ("", False),
    ],
)
def test_similar_questions_have_the_same_names_and_numbers(question: str, is_similar: bool) -> None:
    assert (question_similarity(KNOWN, question) >= MIN_SIMILARITY) is is_similar


def test_most_similar_correction_is_chosen() -> None:
    near = Correction("oth-00001", "corrected-answer", "Who leads the parcel team?", "Kim")
    same = Correction("oth-00002", "corrected-answer", "Who leads the parcel team now?", "Lee")
    words = Correction("oth-00003", "search-words", same.question, "parcel lead")
    chosen = choose_correction(same.question, [near, same, words], ["corrected-answer"])
    assert chosen == (same, 1.0)
    assert choose_correction("When does the shop open?", [near, same, words]) is None
