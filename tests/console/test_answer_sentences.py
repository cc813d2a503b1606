# ruff: noqa: E501 - sentences
"""The sentence above the rows of an answer: what they say, in numbers."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from memory_api.analytics.questions import Question
from memory_api.console.analytics.answers import answer_sentence
from memory_api.console.translations import load_translation

UNCLEAR = {
    "key": "mis-1",
    "playbook": "desk",
    "earlier_count": 4,
    "earlier_rate": 0.5,
    "recent_count": 5,
    "recent_rate": 0.4,
    "difference": -0.1,
    "low": -0.42,
    "high": 0.03,
    "is_significant": False,
}
EFFECT = {"playbook": "desk", "key": "mis-1", "difference": None, "low": None, "high": None}
RUNS = {"run_count": 4, "right_count": 0, "wrong_count": 0}
SENTENCES: list[tuple[Question, list[dict[str, Any]], str]] = [
    (
        Question.VERDICT_DRIFT,
        [UNCLEAR],
        "No clear change: from Jul 1, 2026 to Jul 30, 2026, the verdicts on 1 bullets differ from those of the 30 days before by no more than chance may explain. The strongest sign of a decline, by its 95 % interval (-42 to 3 points): mis-1 (desk), helpful in 50 % of 4 verdicts before and in 40 % of 5 since.",
    ),
    (
        Question.VERDICT_DRIFT,
        [UNCLEAR | {"recent_rate": 1.0, "difference": 0.5, "is_significant": True}],
        "From Jul 1, 2026 to Jul 30, 2026, 0 bullets were less helpful than in the 30 days before, and 1 more helpful. The changes of the 0 others may be chance.",
    ),
    (
        Question.EFFECTS,
        [EFFECT | {"difference": 0.3, "low": 0.1, "high": 0.5}, EFFECT | {"key": "mis-2"}],
        "Known for 1 of 2 bullets: with 1 of them, more agent runs succeed than without, with 0 fewer; the other differences may be chance. To find out, turn on a hold-out: set `holdout_share` of a playbook to 0.2. Then every fifth prompt lacks one bullet, drawn at random.",
    ),
    (
        Question.COVERAGE,
        [{"retrieval_count": 8, "strong_count": 1, "weak_count": 5, "unmatched_count": 2}],
        "75 % of 8 queries found a bullet: for 1 it fits (a score of 0.45 or more), for 5 in part, sharing some words or meaning (0.25 or more). 2 found none: a lesson is missing, or its words are too far from the query.",
    ),
    (
        Question.ERROR_CATEGORIES,
        [{"error_category": None, "reflection_count": 3}],
        "None of 3 reflections names a category of error, such as a timeout or a refused permission. That is good if runs fail by wrong results alone, which have no category. If they fail by errors, name the category in the `error` of the trace.",
    ),
    (
        Question.AGENT_RUNS,
        [RUNS],
        "4 questions were asked. Nobody has said yet whether an answer was right, so nothing shows how far the agent's confidence can be trusted: the page of each question asks for it.",
    ),
    (
        Question.AGENT_RUNS,
        [RUNS | {"right_count": 2, "wrong_count": 1}],
        "4 questions were asked. 2 answers were right, 1 were wrong; the others were not checked.",
    ),
    (
        Question.SURVIVAL,
        [{"playbook": "desk", "event": "left_use", "at_risk_count": 9, "event_count": 1}],
        "desk: of 9 bullets ever in use, deleted ones included, 8 are in use.",
    ),
    (
        Question.BULLETS,
        [{"status": "active", "helpful": 1, "harmful": 2}],
        "1 bullets are active, 0 are quarantined. 1 have more harmful than helpful verdicts. How often they were served is counted in the background and some minutes old.",
    ),
]


@pytest.mark.parametrize(("question", "rows", "sentence"), SENTENCES)
def test_sentence_of_an_answer(
    question: Question, rows: list[dict[str, Any]], sentence: str
) -> None:
    period = (date(2026, 7, 1), date(2026, 7, 30))
    assert answer_sentence(question, rows, period, load_translation("en")) == sentence
    assert answer_sentence(question, rows, period, load_translation("ja")).isascii() is False
