"""The answer of each question about costs as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from memory_api.analytics.questions import Question
from memory_api.console.analytics.answer_words import AnswerRows, ends
from memory_api.console.analytics.names import value_name
from memory_api.console.translations import N_


def costs(a: AnswerRows) -> str:
    by_purpose: Counter[str] = Counter()
    for row in a.rows:
        by_purpose[row["purpose"]] += row["cost_usd"] or 0
    purpose, most = by_purpose.most_common(1)[0]
    text = N_("%(usd)s for %(calls)s calls. Most of it: %(purpose)s, %(most)s.")
    return a.say(
        text,
        usd=a.usd(a.sum_usd()),
        calls=a.total("call_count"),
        purpose=value_name("purpose", purpose, a.translation),
        most=a.usd(most),
    )


def trace_costs(a: AnswerRows) -> str:
    text = N_("%(usd)s for %(count)s traces. The most expensive cost %(most)s.")
    most = a.usd(max(row["cost_usd"] or 0 for row in a.rows))
    return a.say(text, usd=a.usd(a.sum_usd()), count=len(a.rows), most=most)


def lesson_costs(a: AnswerRows) -> str:
    text = N_("%(usd)s for %(count)s reflections and lessons: %(each)s each.")
    each = a.usd(a.sum_usd() / len(a.rows))
    return a.say(text, usd=a.usd(a.sum_usd()), count=len(a.rows), each=each)


def bullet_costs(a: AnswerRows) -> str:
    text = N_("%(usd)s. New bullets: %(count)s, in use: %(used)s.")
    used = a.count("is_surviving", True)
    return a.say(text, usd=a.usd(a.sum_usd()), count=len(a.rows), used=used)


def unit_costs(a: AnswerRows) -> str:
    _, last = ends(a.rows, "month")
    usd, kept = sum(row["cost_usd"] for row in last), sum(row["surviving_count"] for row in last)
    text = N_(
        "In the last month, %(usd)s for %(traces)s traces and %(bullets)s bullets that are in use."
    )
    return a.say(text, usd=a.usd(usd), traces=sum(row["trace_count"] for row in last), bullets=kept)


COST_SENTENCES: Mapping[Question, Callable[[AnswerRows], str]] = {
    Question.COSTS: costs,
    Question.TRACE_COSTS: trace_costs,
    Question.LESSON_COSTS: lesson_costs,
    Question.BULLET_COSTS: bullet_costs,
    Question.UNIT_COSTS: unit_costs,
}
