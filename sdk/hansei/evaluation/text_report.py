"""The tables of a report: rows for the terminal, for HTML and for the console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hansei._model import Json
from hansei.evaluation.plan import PHASES
from hansei.evaluation.statistics import format_p

Translate = Callable[[str], str]
"""Returns a text in the language of the reader."""
MAX_SHOWN_IDS = 12
MAX_SHOWN_FAILURES = 20


@dataclass(frozen=True)
class Section:
    """A table with a title and lines of text below it."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()


def sections(
    report: Json,
    _: Translate = str,
    *,
    max_ids: int = MAX_SHOWN_IDS,
    with_curve: bool = True,
) -> list[Section]:
    """The tables of a report, in the language of `_`. `with_curve` is false if a chart shows it."""
    made = [
        _accuracy(report, _),
        _comparisons(report, _),
        _changed_tasks(report, _, max_ids),
        _controls(report, _, max_ids),
        _gains(report, _),
        _groups(report, _),
        _advice(report, _),
        _costs(report, _),
        _learning(report, _),
        *([_curve(report, _)] if with_curve else []),
        _failures(report, _),
    ]
    return [section for section in made if section.rows or section.lines]


def headline(report: Json, _: Translate = str) -> str:
    """The result in one sentence, with what is not known. A summary of a report is enough."""
    row = next((c for c in report["comparisons"] if c["second"] == "none"), None)
    if row is None:
        return _("There is no comparison: it needs the arm `none` and another one.")
    primary = report["primary"]
    words = _(
        "`%(arm)s` against `none`, %(primary)s: %(points)s points (95 %% interval %(range)s),"
        " p %(p)s"
    ) % {
        "arm": row["first"],
        "primary": _(primary),
        "points": signed(row["mean"]),
        "range": _range(row, _),
        "p": _p(row["p"]),
    }
    if _is_unused(report, row["first"]):
        text = _("NOT MEASURED: `%(arm)s` never got advice. %(words)s.")
        return text % {"arm": row["first"], "words": words}
    if row["low"] > 0 and row["p"] < 0.05:
        return _("BETTER. %(words)s.") % {"words": words}
    if row["high"] < 0 and row["p"] < 0.05:
        return _("WORSE. %(words)s.") % {"words": words}
    if row["low"] > 0 or row["high"] < 0:
        return _(
            "UNCERTAIN. %(words)s. The interval, an approximation, leaves out 0; the exact test"
            " does not, because only %(count)s tasks differ."
        ) % {"words": words, "count": row["better"] + row["worse"]}
    text = _("NO DIFFERENCE SHOWN. %(words)s. %(needed)s")
    return text % {"words": words, "needed": _needed(row, _)}


def plan_line(report: Json, _: Translate = str) -> str:
    plan = report["plan"]
    written = _(
        "The plan was written on %(time)s, before the first call; SHA-256 %(hash)s, without its ID"
        " and time %(repeated)s."
    ) % {"time": plan["created_at"], "hash": plan["sha256"], "repeated": plan["repeated_sha256"]}
    return f"{protocol_line(plan, report['tasks'], _)} {written}"


def protocol_line(plan: Json, tasks: Json, _: Translate = str) -> str:
    protocol = plan["protocol"]
    return _(
        "%(stream)s tasks in the stream, %(held_out)s held out, %(controls)s controls;"
        " windows of %(window)s; repeats: %(repeats)s; seed %(seed)s; feedback: %(feedback)s;"
        " agent: %(agent)s."
    ) % {
        **tasks,
        "window": plan["window"],
        "repeats": protocol["repeats"],
        "seed": protocol["seed"],
        "feedback": protocol["feedback"],
        "agent": plan["agent"] or _("none"),
    }


def _is_unused(report: Json, arm: str) -> bool:
    """Whether the arm never got advice, so that nothing was measured."""
    return any(r["arm"] == arm and r["measures_nothing"] for r in report["advice"])


def _accuracy(report: Json, _: Translate) -> Section:
    primary = report["primary"]
    decides = _("DECIDES: %(phase)s") % {"phase": _(primary)}
    rows = [
        [decides if r["phase"] == "primary" else _(PHASES[r["phase"]]), r["arm"], str(r["tasks"]),
         percent(r["mean"]), accuracy_range(r, _), str(r["failed"])]
        for r in report["accuracy"]
        if r["tasks"] and not (r["phase"] == "held_out" and primary == "held-out tasks")
    ]  # fmt: skip
    header = (
        _("phase"), _("arm"), _("tasks"), _("right"), _("95 % interval"), _("failed calls")
    )  # fmt: skip
    return Section(_("Accuracy"), header, rows)


def _comparisons(report: Json, _: Translate) -> Section:
    rows: list[Sequence[str]] = []
    lines: list[str] = []
    for row in report["comparisons"]:
        pair = _pair(row)
        rows.append([pair, str(row["tasks"]), signed(row["mean"]), _range(row, _),
                     format_p(row["p"]), str(row["better"]), str(row["worse"])])  # fmt: skip
        is_clear = row["p"] < 0.05 and (row["low"] > 0 or row["high"] < 0)
        if not is_clear and not _is_unused(report, row["first"]):
            lines.append(f"{pair}: {_needed(row, _)}")
    header = (
        _("difference"), _("tasks"), _("points"), _("95 % interval"), "p", _("better"), _("worse")
    )  # fmt: skip
    primary = report["primary"]
    title = _("Paired differences: %(phase)s") % {"phase": _(primary)}
    return Section(title, header, rows, lines)


def _changed_tasks(report: Json, _: Translate, max_ids: int) -> Section:
    rows = [
        [_pair(r), *(_ids(r[n], _, max_ids) or _("none") for n in ("became_right", "became_wrong"))]
        for r in report["comparisons"]
        if r["became_right"] or r["became_wrong"]
    ]
    header = _("difference"), _("became better"), _("became worse")
    return Section(_("Tasks that changed"), header, rows)


def _needed(row: Json, _: Translate) -> str:
    """How much more data shows a difference of 5 points."""
    more = row["tasks_needed"] - row["tasks"]
    if more <= 0:
        return _("A difference of 5 points would be seen with this many tasks (power 80 %).")
    return _(
        "To see a difference of 5 points, %(repeats)s more repeats are needed, or %(tasks)s more"
        " tasks (power 80 %%)."
    ) % {"repeats": row["repeats_needed"], "tasks": more}


def _gains(report: Json, _: Translate) -> Section:
    rows = [
        [row["arm"], *(_gain(row[name], _) for name in GAINS)]
        for row in report["agentcl"]
        if any(row[name] for name in GAINS)
    ]
    return Section(_("Gains as in AgentCL, in points"), (_("arm"), *map(_, GAINS.values())), rows)


GAINS = {
    "plasticity": "plasticity (first pass − none)",
    "stability": "stability (second − first pass)",
    "second_pass_gain": "second pass − none",
    "generalization": "generalization (held out − none)",
}


def _gain(value: Json | None, _: Translate) -> str:
    return _("not measured") if value is None else f"{signed(value['mean'])} [{_range(value, _)}]"


def _controls(report: Json, _: Translate, max_ids: int) -> Section:
    rows = [
        [_pair(r), str(r["tasks"]), signed(r["mean"]), _range(r, _),
         format_p(r["p"]), _ids(r["became_wrong"], _, max_ids) or _("none")]
        for r in report["controls"]
    ]  # fmt: skip
    header = (
        _("difference"), _("controls"), _("points"), _("95 % interval"), "p", _("harmed")
    )  # fmt: skip
    return Section(_("Controls: tasks that need no advice"), header, rows)


def _groups(report: Json, _: Translate) -> Section:
    arms = report["plan"]["protocol"]["arms"]
    rows = [[r["group"], *(percent(r["arms"].get(arm)) for arm in arms)] for r in report["groups"]]
    primary = report["primary"]
    title = _("Accuracy by group: %(phase)s") % {"phase": _(primary)}
    return Section(title, (_("group"), *arms), rows)


def _advice(report: Json, _: Translate) -> Section:
    rows = [
        [r["arm"], str(r["calls"]), _count(r["rendered"], _), _count(r["cited"], _),
         _("unknown") if r["followed"] is None
         else _("%(count)s of %(all)s") % {"count": _count(r["followed"], _), "all": r["judged"]},
         f"{r['tokens']:,.0f}"]
        for r in report["advice"]
    ]  # fmt: skip
    header = (
        _("arm"), _("calls"), _("with advice"), _("cited"), _("followed"),
        _("advice tokens a call"),
    )  # fmt: skip
    note = _("Followed: of the attempts of the stream whose bullets a reflection judged.")
    return Section(_("Was the advice used?"), header, rows, [note] if rows else [])


def _costs(report: Json, _: Translate) -> Section:
    rows = [
        [r["arm"], str(r["calls"]), _number(r["input_tokens"], _), _number(r["output_tokens"], _),
         _usd(r["usd"], _), _number(r["seconds"], _, 1), _usd(r["total_usd"], _)]
        for r in report["costs"]
    ]  # fmt: skip
    header = (
        _("arm"), _("answers"), _("input tokens"), _("output tokens"), _("dollars"), _("seconds"),
        _("total dollars"),
    )  # fmt: skip
    total = _("For an answer, on average. The whole run, with learning: %(usd)s.")
    lines = [total % {"usd": _usd(report["total_usd"], _)}]
    if any(r["usd"] is None for r in report["costs"]):
        lines.append(
            _(
                "For the dollars of the agent, let it return `usage.usd`, or its tokens, and pass"
                " --input-price and --output-price."
            )
        )
    return Section(_("Cost of the agent"), header, rows, lines)


def _learning(report: Json, _: Translate) -> Section:
    learning = report["learning"]
    if learning is None:
        return Section(_("Learning"))
    rows = [
        [_("traces"), str(learning["traces"])],
        [_("model calls"), str(learning["calls"])],
        [_("model calls a trace"), _number(learning["calls_per_trace"], _, 2)],
        [_("input tokens"), f"{learning['input_tokens']:,}"],
        [_("output tokens"), f"{learning['output_tokens']:,}"],
        [_("dollars"), _usd(learning["usd"], _)],
        [_("dollars a trace"), _usd(learning["usd_per_trace"], _)],
        [_("active bullets at the end"), _number(learning["bullets"], _)],
        [
            _("of these, more often helpful than harmful"),
            _number(learning["helpful_bullets"], _),
        ],
        [_("dollars a helpful bullet"), _usd(learning["usd_per_helpful_bullet"], _)],
        [_("project"), ", ".join(learning["projects"])],
    ]
    return Section(_("Learning (service)"), (_("what"), _("value")), rows)


def _curve(report: Json, _: Translate) -> Section:
    arms = report["plan"]["protocol"]["arms"]
    rows = [
        [str(row["window"]), *(percent(row["arms"].get(arm)) for arm in arms),
         _number(row["bullets"], _)]
        for row in report["curve"]
    ]  # fmt: skip
    header = (_("window"), *arms, _("bullets after it"))
    return Section(_("Learning curve"), header, rows)


def _failures(report: Json, _: Translate) -> Section:
    failures = report["failures"]
    rows = [
        [f["task_id"], f["arm"], _(PHASES[f["phase"]]), f["error"]]
        for f in failures[:MAX_SHOWN_FAILURES]
    ]
    more = len(failures) - len(rows)
    lines = [_("and %(count)s more: see report.json") % {"count": more}] if more else []
    header = (_("task"), _("arm"), _("phase"), _("error"))
    return Section(_("Failed calls (counted as wrong)"), header, rows, lines)


def _pair(row: Json) -> str:
    return f"{row['first']} − {row['second']}"


def signed(value: float) -> str:
    """A difference of shares in points."""
    return f"{100 * value:+.1f}"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _between(low: str, high: str, _: Translate) -> str:
    return _("%(low)s to %(high)s") % {"low": low, "high": high}


def _range(row: Json, _: Translate) -> str:
    return _between(signed(row["low"]), signed(row["high"]), _)


def accuracy_range(row: Json, _: Translate) -> str:
    """The interval of an accuracy."""
    return _between(percent(row["low"]), percent(row["high"]), _)


def _p(p: float) -> str:
    text = format_p(p)
    return text if text.startswith("<") else f"= {text}"


def _count(value: int | None, _: Translate) -> str:
    return _("unknown") if value is None else str(value) if value else _("0 (NEVER)")


def _number(value: Any, _: Translate, digits: int = 0) -> str:
    return _("unknown") if value is None else f"{value:,.{digits}f}"


def _usd(value: float | None, _: Translate) -> str:
    return _("unknown") if value is None else f"${value:.6f}"


def _ids(ids: Sequence[str], _: Translate, max_ids: int) -> str:
    shown = ", ".join(ids[:max_ids])
    more = len(ids) - max_ids
    return _("%(ids)s and %(count)s more") % {"ids": shown, "count": more} if more > 0 else shown
