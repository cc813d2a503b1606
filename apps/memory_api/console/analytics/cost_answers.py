"""The answer of each question about costs as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from memory_api.analytics.questions import Question
from memory_api.console.analytics.answer_words import AnswerRows, ends
from memory_api.console.analytics.names import value_name
from memory_api.console.translations import N_


def costs(answer: AnswerRows) -> str:
    by_purpose: Counter[str] = Counter()
    for row in answer.rows:
        by_purpose[row["purpose"]] += row["cost_usd"] or 0
    purpose, most = by_purpose.most_common(1)[0]
    text = N_("%(usd)s for %(calls)s calls. Most of it: %(purpose)s, %(most)s.")
    return answer.sentence(
        text,
        usd=answer.usd(answer.sum_usd()),
        calls=answer.total("call_count"),
        purpose=value_name("purpose", purpose, answer.translation),
        most=answer.usd(most),
    )


def trace_costs(answer: AnswerRows) -> str:
    text = N_("%(usd)s for %(count)s traces. The most expensive cost %(most)s.")
    most = answer.usd(max(row["cost_usd"] or 0 for row in answer.rows))
    return answer.sentence(
        text, usd=answer.usd(answer.sum_usd()), count=len(answer.rows), most=most
    )


def lesson_costs(answer: AnswerRows) -> str:
    text = N_("%(usd)s for %(count)s reflections and lessons: %(each)s each.")
    each = answer.usd(answer.sum_usd() / len(answer.rows))
    return answer.sentence(
        text, usd=answer.usd(answer.sum_usd()), count=len(answer.rows), each=each
    )


def bullet_costs(answer: AnswerRows) -> str:
    text = N_("%(usd)s. New bullets: %(count)s, in use: %(used)s.")
    used = answer.count("is_surviving", True)
    return answer.sentence(
        text, usd=answer.usd(answer.sum_usd()), count=len(answer.rows), used=used
    )


def unit_costs(answer: AnswerRows) -> str:
    _, last = ends(answer.rows, "month")
    usd, kept = sum(row["cost_usd"] for row in last), sum(row["surviving_count"] for row in last)
    text = N_(
        "In the last month, %(usd)s for %(traces)s traces and %(bullets)s bullets that are in use."
    )
    return answer.sentence(
        text, usd=answer.usd(usd), traces=sum(row["trace_count"] for row in last), bullets=kept
    )


COST_SENTENCES: Mapping[Question, Callable[[AnswerRows], str]] = {
    Question.COSTS: costs,
    Question.TRACE_COSTS: trace_costs,
    Question.LESSON_COSTS: lesson_costs,
    Question.BULLET_COSTS: bullet_costs,
    Question.UNIT_COSTS: unit_costs,
}
