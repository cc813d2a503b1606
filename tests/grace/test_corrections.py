"""Which questions are similar enough to share a correction."""

from __future__ import annotations

import pytest

from memory_api.grace.corrections import (
    MIN_SIMILARITY,
    Correction,
    choose_correction,
    is_mere_question,
    question_similarity,
)
from tests.support.cases import each_case

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


@each_case(
    ("question", "other"),
    [
        (
            "Why did the shop end its early orders?",
            "In what year did the shop end its early orders?",
        ),
        ("When did the new rule for parcels start?", "Where did the new rule for parcels start?"),
        (
            "How long do we store invoices of customers?",
            "How long do we store invoices of suppliers?",
        ),
        ("What is the highest price of a parcel?", "What is the lowest price of a parcel?"),
        ("Who leads the parcel team?", "Who leads the parcel team of the harbor?"),
        ("東京本社の電話番号は何番ですか。", "大阪本社の電話番号は何番ですか。"),
        ("What is it?", "Who is it?"),
    ],
)
def test_plain_words_alone_make_no_question_similar(question: str, other: str) -> None:
    assert question_similarity(question, other) == 0.0
    assert question_similarity(other, question) == 0.0


@each_case(
    ("question", "other"),
    [
        ("Who leads the parcel team?", "What is the name of the one who leads the parcel team?"),
        (
            "How long do we store invoices of customers?",
            "Invoices of customers: how long do we store them?",
        ),
        ("本社の電話番号は何番ですか。", "本社の電話番号は何番でしょうか"),
    ],
)
def test_other_wording_of_a_question_is_similar(question: str, other: str) -> None:
    assert question_similarity(question, other) >= MIN_SIMILARITY


def test_question_words_are_no_answer() -> None:
    assert [
        text for text in ("Why?", "What is that?", "なぜ？", "No", "Kim?") if is_mere_question(text)
    ] == [
        "Why?",
        "What is that?",
    ]


def test_most_similar_correction_is_chosen() -> None:
    near = Correction("oth-00001", "corrected-answer", "Who leads the parcel team?", "Kim")
    same = Correction("oth-00002", "corrected-answer", "Who leads the parcel team now?", "Lee")
    words = Correction("oth-00003", "search-words", same.question, "parcel lead")
    chosen = choose_correction(same.question, [near, same, words], ["corrected-answer"])
    assert chosen == (same, 1.0)
    assert choose_correction("When does the shop open?", [near, same, words]) is None
