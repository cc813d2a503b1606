"""The sentences of the questions whether agents get better: advice, bullets and verdicts."""

from __future__ import annotations

from collections import Counter

from memory_api.analytics.improvement import improvement_of
from memory_api.console.analytics.answer_words import AnswerRows
from memory_api.console.analytics.names import value_name
from memory_api.console.translations import N_

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


def answer_improvement(answer: AnswerRows) -> str:
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


def answer_movers(answer: AnswerRows) -> str:
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


def answer_verdict_drift(answer: AnswerRows) -> str:
    """The rows begin with the bullet that most surely became less helpful."""
    days = (answer.last - answer.first).days + 1
    sure = [row["difference"] for row in answer.rows if row["is_significant"]]
    text = N_(
        "From %(first)s to %(last)s, %(worse)s bullets were less helpful than in the %(days)s "
        "days before, and %(better)s more helpful. The changes of the %(others)s others may be "
        "chance."
    )
    if not sure:
        text = N_(
            "No clear change: from %(first)s to %(last)s, the verdicts on %(others)s bullets differ"
            " from those of the %(days)s days before by no more than chance may explain."
        )
    parts = [
        answer.sentence(
            text,
            first=answer.day(answer.first),
            last=answer.day(answer.last),
            days=days,
            worse=sum(difference < 0 for difference in sure),
            better=sum(difference > 0 for difference in sure),
            others=len(answer.rows) - len(sure),
        )
    ]
    first = answer.rows[0]
    if first["difference"] < 0:
        text = N_(
            "The strongest sign of a decline, by its 95 %% interval (%(low)s to %(high)s points): "
            "%(key)s, helpful in %(before)s of %(earlier)s verdicts before and in %(since)s of "
            "%(recent)s since."
        )
        parts.append(
            answer.sentence(
                text,
                key=f"{first['key']} ({first['playbook']})",
                before=answer.percent(first["earlier_rate"]),
                earlier=int(first["earlier_count"]),
                since=answer.percent(first["recent_rate"]),
                recent=int(first["recent_count"]),
                low=answer.number(100 * first["low"]),
                high=answer.number(100 * first["high"]),
            )
        )
    return " ".join(parts)


def answer_verdicts(answer: AnswerRows) -> str:
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


def answer_effects(answer: AnswerRows) -> str:
    bullets = {(row["playbook"], row["key"]) for row in answer.rows}
    known = {(r["playbook"], r["key"]) for r in answer.rows if r["difference"] is not None}
    text = N_(
        "Known for %(known)s of %(count)s bullets: with %(better)s of them, more agent runs succeed"
        " than without, with %(worse)s fewer; the other differences may be chance."
    )
    if not known:
        text = N_(
            "Unknown for all %(count)s bullets: none was given to some agent runs and, on its own, "
            "withheld from others, so nothing compares."
        )
    sure = [row for row in answer.rows if row["difference"] is not None]
    shown = answer.sentence(
        text,
        known=len(known),
        count=len(bullets),
        better=len({(r["playbook"], r["key"]) for r in sure if r["low"] > 0}),
        worse=len({(r["playbook"], r["key"]) for r in sure if r["high"] < 0}),
    )
    if len(known) == len(bullets):
        return shown
    return f"{shown} " + answer.sentence(
        N_(
            "To find out, turn on a hold-out: set `holdout_share` of a playbook to 0.2. Then every "
            "fifth prompt lacks one bullet, drawn at random."
        )
    )
