"""One sentence for each question: the answer, above its chart and table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date

from memory_api.analytics.questions import Question
from memory_api.console.analytics.answer_words import AnswerRows, Rows, ends
from memory_api.console.analytics.benefit_answers import (
    answer_effects,
    answer_improvement,
    answer_movers,
    answer_verdict_drift,
    answer_verdicts,
)
from memory_api.console.analytics.names import value_name
from memory_api.console.analytics.nothing_found import NOTHING_FOUND
from memory_api.console.translations import N_, Translation
from memory_api.memories.search.query import MIN_RELEVANCE

HALF = 0.5
MAX_PLAYBOOKS = 3
"""Playbooks that a sentence names."""


def answer_sentence(
    question: Question, rows: Rows, period: tuple[date, date], translation: Translation
) -> str:
    """Without rows, what was not found, whether that is good, and what would fill the page."""
    answer = AnswerRows(rows, *period, translation)
    sentence = _SENTENCES[question](answer) if rows else ""
    return sentence or translation.gettext(NOTHING_FOUND[question])


def _bullets(answer: AnswerRows) -> str:
    harmful = sum(row["harmful"] > row["helpful"] for row in answer.rows)
    return answer.sentence(
        N_(
            "%(active)s bullets are active, %(quarantined)s are quarantined. %(harmful)s have "
            "more harmful than helpful verdicts. How often they were served is counted in the "
            "background and some minutes old."
        ),
        active=answer.count("status", "active"),
        quarantined=answer.count("status", "quarantined"),
        harmful=harmful,
    )


def _bullet_versions(answer: AnswerRows) -> str:
    newest = max(row["changed_at"] for row in answer.rows)
    bullets = len({(row["playbook"], row["key"]) for row in answer.rows})
    text = N_("%(count)s changes of %(bullets)s bullets, the last one on %(day)s.")
    return answer.sentence(
        text, count=len(answer.rows), bullets=bullets, day=answer.day(newest.date())
    )


def _playbook_sizes(answer: AnswerRows) -> str:
    first, last = ends(answer.rows, "day")
    text = N_("%(last)s bullets are active at the end of %(day)s; %(first)s were on the first day.")
    return answer.sentence(
        text,
        last=sum(row["active_count"] for row in last),
        first=sum(row["active_count"] for row in first),
        day=answer.day(max(row["day"] for row in answer.rows)),
    )


def _churn(answer: AnswerRows) -> str:
    removed = sum(answer.total(f"{kind}_count") for kind in ("merged", "archived", "deleted"))
    text = N_(
        "Bullets created: %(created)s, changed: %(changed)s, quarantined: "
        "%(quarantined)s, merged, archived or deleted: %(removed)s."
    )
    return answer.sentence(
        text,
        created=answer.total("created_count"),
        changed=answer.total("changed_count"),
        quarantined=answer.total("quarantined_count"),
        removed=removed,
    )


def _survival(answer: AnswerRows) -> str:
    """For each playbook, up to three."""
    parts: list[str] = []
    for playbook in list(dict.fromkeys(row["playbook"] for row in answer.rows))[:MAX_PLAYBOOKS]:
        own = [row for row in answer.rows if row["playbook"] == playbook]
        used = [row for row in own if row["event"] == "left_use"]
        count = max((row["at_risk_count"] for row in used), default=0)
        left = sum(row["event_count"] for row in used)
        text = N_(
            "%(playbook)s: of %(count)s bullets ever in use, deleted ones included, %(used)s are "
            "in use."
        )
        parts.append(
            answer.sentence(text, playbook=playbook, used=int(count - left), count=int(count))
        )
        helped = [row for row in own if row["event"] == "first_helpful_verdict"]
        half = next((row["day"] for row in helped if row["survival"] <= HALF), None)
        if half is not None:
            text = N_("Half had a helpful verdict within %(days)s days.")
            parts.append(answer.sentence(text, days=half))
    return " ".join(parts)


def _near_duplicates(answer: AnswerRows) -> str:
    text = N_(
        "%(count)s pairs of bullets say nearly the same. The closest are %(key)s and %(other)s."
    )
    return answer.sentence(
        text, count=len(answer.rows), key=answer.rows[0]["key"], other=answer.rows[0]["other_key"]
    )


def _contradictions(answer: AnswerRows) -> str:
    both = sum(row["status"] == row["other_status"] == "active" for row in answer.rows)
    text = N_(
        "Pairs of bullets that contradict each other: %(count)s. Pairs of "
        "which agents get both: %(both)s."
    )
    return answer.sentence(text, count=len(answer.rows), both=both)


def _funnel(answer: AnswerRows) -> str:
    sums: Counter[str] = Counter()
    for row in answer.rows:
        sums[row["stage"]] += int(row["count"])
    text = N_(
        "%(traces)s traces led to %(reflections)s reflections and %(lessons)s lessons. Lessons "
        "curated: %(curated)s; new bullets: %(bullets)s."
    )
    return answer.sentence(
        text,
        traces=sums["traces"],
        reflections=sums["reflections"],
        lessons=sums["strategies_and_insights"],
        curated=sums["lessons_decided"],
        bullets=sums["bullets_created"],
    )


def _coverage(answer: AnswerRows) -> str:
    count, strong, weak, unmatched = (
        answer.total(f"{name}_count") for name in ("retrieval", "strong", "weak", "unmatched")
    )
    text = N_(
        "%(share)s of %(count)s queries found a bullet: for %(strong)s it fits (a score of %(high)s"
        " or more), for %(weak)s in part, sharing some words or meaning (%(low)s or more)."
        " %(unmatched)s found none: a lesson is missing, or its words are too far from the query."
    )
    return answer.sentence(
        text,
        share=answer.percent((strong + weak) / count),
        count=count,
        strong=strong,
        weak=weak,
        unmatched=unmatched,
        high=answer.number(MIN_RELEVANCE["strong"], 2),
        low=answer.number(MIN_RELEVANCE["weak"], 2),
    )


def _uncovered_queries(answer: AnswerRows) -> str:
    text = N_(
        "%(count)s queries found no bullet that matches: a lesson is missing, or its words are too "
        "far from the query."
    )
    return answer.sentence(text, count=len(answer.rows))


def _error_categories(answer: AnswerRows) -> str:
    counts: Counter[str | None] = Counter()
    for row in answer.rows:
        counts[row["error_category"]] += row["reflection_count"]
    all_count, uncategorized = counts.total(), counts.pop(None, 0)
    if not counts:
        text = N_(
            "None of %(all)s reflections names a category of error, such as a timeout or a refused "
            "permission. That is good if runs fail by wrong results alone, which have no category. "
            "If they fail by errors, name the category in the `error` of the trace."
        )
        return answer.sentence(text, all=all_count)
    name, count = counts.most_common(1)[0]
    text = N_(
        "%(named)s of %(all)s reflections name a category of error. Most frequent: %(name)s, in "
        "%(count)s."
    )
    shown = value_name("error_category", str(name), answer.translation)
    return answer.sentence(
        text, named=all_count - uncategorized, all=all_count, name=shown, count=count
    )


def _conflicts(answer: AnswerRows) -> str:
    text = N_("In %(count)s traces, a check contradicts the outcome that the client reported.")
    return answer.sentence(text, count=len(answer.rows))


def _agent_runs(answer: AnswerRows) -> str:
    text = N_(
        "%(count)s questions were asked. %(right)s answers were right, %(wrong)s were wrong; the"
        " others were not checked."
    )
    right, wrong = answer.total("right_count"), answer.total("wrong_count")
    if not right + wrong:
        text = N_(
            "%(count)s questions were asked. Nobody has said yet whether an answer was right, so "
            "nothing shows how far the agent's confidence can be trusted: the page of each question"
            " asks for it."
        )
    return answer.sentence(text, count=answer.total("run_count"), right=right, wrong=wrong)


def _costs(answer: AnswerRows) -> str:
    by_purpose: Counter[str] = Counter()
    for row in answer.rows:
        by_purpose[row["purpose"]] += row["cost_usd"] or 0
    purpose, most = by_purpose.most_common(1)[0]
    text = N_("%(usd)s for %(calls)s calls. Most of it: %(purpose)s, %(most)s.")
    return answer.sentence(
        text,
        usd=answer.usd(answer.sum_usd("cost_usd")),
        calls=answer.total("call_count"),
        purpose=value_name("purpose", purpose, answer.translation),
        most=answer.usd(most),
    )


def _unit_costs(answer: AnswerRows) -> str:
    usd, bullets = answer.sum_usd("cost_usd"), answer.total("bullet_count")
    text = N_("So far %(usd)s for %(traces)s traces and %(bullets)s bullets in use.")
    shown = answer.sentence(
        text, usd=answer.usd(usd), traces=answer.total("trace_count"), bullets=bullets
    )
    if not bullets:
        return shown
    return f"{shown} " + answer.sentence(
        N_("That is %(each)s per bullet in use."), each=answer.usd(usd / bullets)
    )


_SENTENCES: Mapping[Question, Callable[[AnswerRows], str]] = {
    Question.BULLETS: _bullets,
    Question.BULLET_VERSIONS: _bullet_versions,
    Question.PLAYBOOK_SIZES: _playbook_sizes,
    Question.CHURN: _churn,
    Question.SURVIVAL: _survival,
    Question.NEAR_DUPLICATES: _near_duplicates,
    Question.CONTRADICTIONS: _contradictions,
    Question.IMPROVEMENT: answer_improvement,
    Question.MOVERS: answer_movers,
    Question.VERDICT_DRIFT: answer_verdict_drift,
    Question.VERDICTS: answer_verdicts,
    Question.EFFECTS: answer_effects,
    Question.FUNNEL: _funnel,
    Question.COVERAGE: _coverage,
    Question.UNCOVERED_QUERIES: _uncovered_queries,
    Question.ERROR_CATEGORIES: _error_categories,
    Question.CONFLICTS: _conflicts,
    Question.AGENT_RUNS: _agent_runs,
    Question.COSTS: _costs,
    Question.UNIT_COSTS: _unit_costs,
}
