"""One sentence for each question: the answer, above its chart and table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import date

from memory_api.analytics.improvement import improvement_of
from memory_api.analytics.questions import Question
from memory_api.console.analytics.answer_words import AnswerRows, Rows, ends
from memory_api.console.analytics.names import value_name
from memory_api.console.translations import N_, Translation

HALF = 0.5
MAX_PLAYBOOKS = 3
"""Playbooks that a sentence names."""
NO_COMPARISON = N_(
    "No agent run that had other bullets went without it since it was added, so nothing compares."
)
ALWAYS_TOGETHER = N_(
    "It was always in the prompt together with the same other bullets, so nothing shows what it"
    " does alone."
)


def why_unknown(without_runs: int) -> str:
    """Why the effect of a bullet has no difference. `without_runs`: runs that had other bullets."""
    return ALWAYS_TOGETHER if without_runs else NO_COMPARISON


def answer_sentence(
    question: Question, rows: Rows, period: tuple[date, date], translation: Translation
) -> str:
    """Empty if the rows answer nothing."""
    return _SENTENCES[question](AnswerRows(rows, *period, translation)) if rows else ""


def _bullets(answer: AnswerRows) -> str:
    harmful = sum(row["harmful"] > row["helpful"] for row in answer.rows)
    return answer.sentence(
        N_(
            "%(active)s bullets are active, %(quarantined)s are quarantined. %(harmful)s have "
            "more harmful than helpful verdicts."
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
        count = max(row["at_risk_count"] for row in used)
        left = sum(row["event_count"] for row in used)
        text = N_("%(playbook)s: %(used)s of %(count)s bullets are in use.")
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


def _improvement(answer: AnswerRows) -> str:
    """The answer of the overview, of a playbook if one was chosen."""
    named = {row["playbook"] for row in answer.rows}
    rows = answer.rows if None in named else [dict(row) | {"playbook": None} for row in answer.rows]
    improvement = improvement_of(rows, 0.0)
    total = improvement.total
    if total is None or not total["runs"]:
        return ""
    name = improvement.answer
    if name == "no_holdout":
        text = N_(
            "Unknown: no hold-out compares runs with and without advice. %(rate)s of all runs "
            "succeed."
        )
        return answer.sentence(text, rate=answer.percent(total["rate"]))
    if total["difference"] is None or name == "more_runs":
        text = N_(
            "Not known yet: about %(count)s more runs are needed. %(rate)s of all runs succeed."
        )
        return answer.sentence(
            text, count=improvement.missing_runs, rate=answer.percent(total["rate"])
        )
    texts = {
        "better": N_(
            "Yes: %(with)s of the runs with advice succeed, and %(without)s of those without it."
            " The difference is %(low)s to %(high)s points (95 %% interval), of %(runs)s runs."
        ),
        "worse": N_(
            "No, advice does harm: %(with)s of the runs with it succeed, and %(without)s of "
            "those without it. The difference is %(low)s to %(high)s points (95 %% interval), of"
            " %(runs)s runs."
        ),
        "same": N_(
            "No difference: %(with)s of the runs with advice succeed, and %(without)s of those "
            "without it. The difference is %(low)s to %(high)s points (95 %% interval), of "
            "%(runs)s runs."
        ),
    }
    return answer.sentence(
        texts[name],
        **{
            "with": answer.percent(total["with_rate"]),
            "without": answer.percent(total["without_rate"]),
            "low": answer.number(100 * total["low"]),
            "high": answer.number(100 * total["high"]),
            "runs": total["with_runs"] + total["without_runs"],
        },
    )


def _movers(answer: AnswerRows) -> str:
    worst, best = answer.rows[0], answer.rows[-1]
    period = N_("From %(first)s to %(last)s.")
    days = {"first": answer.day(answer.first), "last": answer.day(answer.last)}
    parts = [answer.sentence(period, **days)]
    for row, text in (
        (worst, N_("Most harmful: %(key)s, %(harmful)s harmful and %(helpful)s helpful verdicts.")),
        (best, N_("Most helpful: %(key)s, %(helpful)s helpful and %(harmful)s harmful verdicts.")),
    ):
        if row["net_count"] < 0 if row is worst else row["net_count"] > 0:
            counts = {n: int(row[f"{n}_count"]) for n in ("harmful", "helpful")}
            parts.append(answer.sentence(text, key=f"{row['key']} ({row['playbook']})", **counts))
    return " ".join(parts)


def _verdict_drift(answer: AnswerRows) -> str:
    days = (answer.last - answer.first).days + 1
    sure = [row["difference"] for row in answer.rows if row["is_significant"]]
    text = N_(
        "From %(first)s to %(last)s, %(worse)s bullets were less helpful than in the %(days)s "
        "days before, and %(better)s more helpful. The changes of the %(others)s others may be "
        "chance."
    )
    return answer.sentence(
        text,
        first=answer.day(answer.first),
        last=answer.day(answer.last),
        days=days,
        worse=sum(difference < 0 for difference in sure),
        better=sum(difference > 0 for difference in sure),
        others=len(answer.rows) - len(sure),
    )


def _verdicts(answer: AnswerRows) -> str:
    by_judge: Counter[str] = Counter()
    for row in answer.rows:
        by_judge[row["judge"]] += sum(
            row[f"{tag}_count"] for tag in ("helpful", "harmful", "neutral")
        )
    judge, count = by_judge.most_common(1)[0]
    text = N_(
        "%(helpful)s helpful, %(harmful)s harmful and %(neutral)s neutral verdicts from %(first)s"
        " to %(last)s. %(count)s of them by %(judge)s."
    )
    return answer.sentence(
        text,
        helpful=answer.total("helpful_count"),
        harmful=answer.total("harmful_count"),
        neutral=answer.total("neutral_count"),
        judge=value_name("judge", judge, answer.translation),
        count=count,
        first=answer.day(answer.first),
        last=answer.day(answer.last),
    )


def _effects(answer: AnswerRows) -> str:
    bullets = {(row["playbook"], row["key"]) for row in answer.rows}
    known = {(r["playbook"], r["key"]) for r in answer.rows if r["difference"] is not None}
    whys = Counter(why_unknown(row["without_runs"]) for row in answer.rows if row["key"])
    text = N_("Known for %(known)s of %(count)s bullets.")
    if not known:
        text = N_("Unknown for all %(count)s bullets.")
    parts = [answer.sentence(text, known=len(known), count=len(bullets))]
    if len(known) < len(bullets):
        parts.append(answer.sentence(whys.most_common(1)[0][0]))
    return " ".join(parts)


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
        "%(share)s of %(count)s queries found a bullet that matches: %(strong)s a strong match, "
        "%(weak)s a weak one. %(unmatched)s found none: a lesson is missing, or its words are too "
        "far from the query."
    )
    share = answer.percent((strong + weak) / count)
    return answer.sentence(
        text, share=share, count=count, strong=strong, weak=weak, unmatched=unmatched
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
        text = N_("None of %(all)s reflections names a category of error.")
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
    return answer.sentence(
        text,
        count=answer.total("run_count"),
        right=answer.total("right_count"),
        wrong=answer.total("wrong_count"),
    )


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
    Question.IMPROVEMENT: _improvement,
    Question.MOVERS: _movers,
    Question.VERDICT_DRIFT: _verdict_drift,
    Question.VERDICTS: _verdicts,
    Question.EFFECTS: _effects,
    Question.FUNNEL: _funnel,
    Question.COVERAGE: _coverage,
    Question.UNCOVERED_QUERIES: _uncovered_queries,
    Question.ERROR_CATEGORIES: _error_categories,
    Question.CONFLICTS: _conflicts,
    Question.AGENT_RUNS: _agent_runs,
    Question.COSTS: _costs,
    Question.UNIT_COSTS: _unit_costs,
}
