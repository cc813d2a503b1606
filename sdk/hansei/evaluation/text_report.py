"""The tables of a report: rows for the terminal, for HTML and for the console."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hansei._model import Json
from hansei.evaluation.plan import PHASES
from hansei.evaluation.report_format import PRIMARY_LABELS
from hansei.evaluation.statistics import format_p
from hansei.evaluation.wording import (
    MEMORIES,
    Translate,
    count_tasks,
    is_unused,
    percent,
    percent_range,
    shown_direction,
    signed,
    signed_range,
)

MAX_SHOWN_IDS = 12
MAX_SHOWN_FAILURES = MAX_SHOWN_BULLETS = 20


@dataclass(frozen=True)
class Section:
    """A table with a title and lines of text below it."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    is_detail: bool = False
    """Not needed to know whether the memory helped."""


def sections(
    report: Json,
    _: Translate = str,
    *,
    max_ids: int = MAX_SHOWN_IDS,
    on_page: bool = False,
) -> list[Section]:
    """The tables of a report, in the language of `_`. A page has the curve as a chart, and explains
    the words.
    """
    phase, first_pass = report["primary"], "stream"
    decides = _(PRIMARY_LABELS[phase])
    results = [
        _accuracy(report, decides, _),
        *([] if on_page else [_curve(report, _)]),
        _comparisons(report, report["comparisons"], decides, _),
        _changed_tasks(report, _, max_ids),
        _controls(report, _, max_ids),
    ]
    details = [
        _comparisons(report, report.get("first_pass", []), _(PRIMARY_LABELS[first_pass]), _),
        _groups(report, decides, _),
        _advice(report, _),
        _bullets(report, _),
        _failures(report, _),
        _costs(report, _),
        _learning(report, _),
        _gains(report, _),
        *([_words(report, _)] if on_page else []),
    ]
    made = [*results, *(replace(section, is_detail=True) for section in details)]
    return [section for section in made if section.rows or section.lines]


def _accuracy(report: Json, decides: str, _: Translate) -> Section:
    name = _("DECIDES: %(phase)s") % {"phase": decides}
    shown = {"held-out tasks": "held_out", "second pass": "second", "stream": "stream"}
    rows = [
        [name if r["phase"] == "primary" else _(PHASES[r["phase"]]), r["arm"], str(r["tasks"]),
         percent(r["mean"]), percent_range(r, _), str(r["failed"])]
        for r in report["accuracy"]
        if r["tasks"] and r["phase"] != shown.get(report["primary"])
    ]  # fmt: skip
    header = (
        _("phase"), _("arm"), _("tasks"),
        _("mean score") if report.get("partial_scores") else _("right"),
        _("95 % interval"), _("failed calls"),
    )  # fmt: skip
    return Section(_("Accuracy"), header, rows)


def _comparisons(report: Json, comparisons: Sequence[Json], phase: str, _: Translate) -> Section:
    rows: list[Sequence[str]] = []
    lines: list[str] = []
    for row in comparisons:
        pair = _pair(row)
        rows.append([pair, str(row["tasks"]), signed(row["mean"]), signed_range(row, _),
                     format_p(row["p"]), str(row["better"]), str(row["worse"])])  # fmt: skip
        if not shown_direction(row) and not is_unused(report, row["first"]):
            lines += [f"{pair}: {text}" for text in [_needed(row, _)] if text]
    lines += _changes_by_failed_calls(comparisons, _)
    header = (
        _("difference"), _("tasks"), _("points"), _("95 % interval"), _p_name(report, _),
        _("better"), _("worse"),
    )  # fmt: skip
    return Section(_("Differences: %(phase)s") % {"phase": phase}, header, rows, lines)


def _changed_tasks(report: Json, _: Translate, max_ids: int) -> Section:
    rows = [
        [_pair(r), *(_ids(r[n], _, max_ids) or "–" for n in ("became_right", "became_wrong"))]
        for r in report["comparisons"]
        if r["became_right"] or r["became_wrong"]
    ]
    header = _("difference"), _("became better"), _("became worse")
    return Section(_("Tasks that changed"), header, rows)


def _changes_by_failed_calls(comparisons: Sequence[Json], _: Translate) -> list[str]:
    text = _(
        "%(pair)s: tasks that differ only because a call failed, which counts as wrong: %(ids)s."
    )
    return [
        text % {"pair": _pair(row), "ids": _ids(ids, _, MAX_SHOWN_IDS)}
        for row in comparisons
        if (ids := row.get("changed_by_failed_call"))
    ]


def _needed(row: Json, _: Translate) -> str:
    """How much more data shows this difference, and one of 5 points, which follows from how many
    tasks changed.
    """
    more = row["tasks_needed"] - row["tasks"]
    if not row["better"] and not row["worse"]:
        text = ""
    elif more <= 0:
        text = _("A difference of 5 points would be seen with this many tasks (power 80 %).")
    else:
        text = _("To see a difference of 5 points, add %(tasks)s (power 80 %%).") % {
            "tasks": count_tasks(more, _)
        }
    needed = row.get("changes_needed")
    if needed is None or row["p"] < 0.05:
        return text
    changed, others = sorted((row["better"], row["worse"]), reverse=True)
    numbers = {"changed": changed, "others": others, "needed": needed}
    if needed + others > row["tasks"]:
        numbers["tasks"] = count_tasks(row["tasks"], _)
        reach = _(
            "%(tasks)s cannot reach p < .05: with %(others)s in the other direction,"
            " %(needed)s would have to change in one, in any number of repeats."
        )
    else:
        reach = _(
            "Tasks that changed: %(changed)s in one direction, %(others)s in the other. p < .05"
            " needs %(needed)s against %(others)s."
        )
    return f"{reach % numbers} {text}".rstrip()


def _gains(report: Json, _: Translate) -> Section:
    rows = [
        [row["arm"], *(_gain(row[name], _) for name in GAINS)]
        for row in report["agentcl"]
        if any(row[name] for name in GAINS)
    ]
    return Section(_("Gains as in AgentCL, in points"), (_("arm"), *map(_, GAINS.values())), rows)


WORDS = {
    "first pass, stream": "All tasks but the held-out ones, asked for the first time.",
    "window": "Some tasks of the first pass. After each window, each memory learns from its own"
    " answers to them.",
    "second pass": "The same tasks again after learning, for arms with a memory. They are compared"
    " with the first answers of the arm without one.",
    "held-out task": "A task that no memory learns from.",
    "frozen memory": "A memory that does not learn any more.",
    "control": "A task that needs no advice. An arm that gets it wrong only with advice is harmed.",
    "bullet, lesson": "One piece of advice in the memory of Hansei. All bullets are its playbook.",
    "points": "The share of right answers, or the mean score, as a percentage, minus another one.",
    "95 % interval": "The values that fit the answers. If it leaves out 0, chance alone rarely"
    " explains the difference.",
}
GAINS = {
    "plasticity": "plasticity (first pass − none)",
    "stability": "stability (second − first pass)",
    "second_pass_gain": "second pass − none",
    "generalization": "generalization (held out − none)",
}


def _gain(value: Json | None, _: Translate) -> str:
    return (
        _("not measured")
        if value is None
        else f"{signed(value['mean'])} [{signed_range(value, _)}]"
    )


def _controls(report: Json, _: Translate, max_ids: int) -> Section:
    rows = [
        [_pair(r), str(r["tasks"]), signed(r["mean"]), signed_range(r, _),
         format_p(r["p"]), _ids(r["became_wrong"], _, max_ids) or "–"]
        for r in report["controls"]
    ]  # fmt: skip
    lines = [_("Of the first pass and the held-out tasks, without calls that failed.")]
    if not rows:
        lines = [_("No control was answered by `none` and another arm.")]
    header = (
        _("difference"), _("controls"), _("points"), _("95 % interval"), _p_name(report, _),
        _("harmed"),
    )  # fmt: skip
    title = _("Controls: tasks that need no advice")
    return Section(title, header, rows, lines if report["tasks"]["controls"] else [])


def _groups(report: Json, decides: str, _: Translate) -> Section:
    arms = report["plan"]["protocol"]["arms"]
    rows = [[r["group"], *(percent(r["arms"].get(arm)) for arm in arms)] for r in report["groups"]]
    title = _("Accuracy by group: %(phase)s") % {"phase": decides}
    return Section(title, (_("group"), *arms), rows)


def _advice(report: Json, _: Translate) -> Section:
    unknown = _("needs a model") if _has_no_model(report) else _("unknown")
    rows = [
        [r["arm"], str(r["calls"]), _count(r["rendered"], _),
         "–" if r["cited"] is None else _count(r["cited"], _),
         "–" if r["cited"] is None else unknown if r["followed"] is None
         else _("%(count)s of %(all)s") % {"count": _count(r["followed"], _), "all": r["judged"]},
         f"{r['tokens']:,.0f}"]
        for r in report["advice"]
    ]  # fmt: skip
    header = (
        _("arm"), _("calls"), _("with advice"), _("cited"), _("followed"),
        _("tokens of advice, if any"),
    )  # fmt: skip
    note = _("Followed: of the attempts of the stream whose bullets a reflection judged.")
    return Section(_("Was the advice used?"), header, rows, [note] if rows else [])


def _bullets(report: Json, _: Translate) -> Section:
    bullets = report.get("bullets", [])
    rows = [
        [r["key"], r["arm"], str(r["repeat"] + 1), str(r["given"]), _count(r["cited"], _)]
        for r in bullets[:MAX_SHOWN_BULLETS]
    ]
    more = len(bullets) - len(rows)
    lines = [_("and %(count)s more: see report.json") % {"count": more}] if more else []
    if never := sum(not r["cited"] for r in bullets):
        lines.append(_("Bullets that were never cited: %(count)s.") % {"count": never})
    header = _("bullet"), _("arm"), _("repeat"), _("calls with it"), _("cited")
    return Section(_("How often each bullet was cited"), header, rows, lines)


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
            _number(learning["helpful_bullets"], _)
            if learning["helpful_bullets"] or not _has_no_model(report)
            else _("needs a model"),
        ],
        [_("dollars a helpful bullet"), _usd(learning["usd_per_helpful_bullet"], _)],
        [_("lessons that wait"), _number(learning["waiting"], _)],
        [_("project"), ", ".join(learning["projects"]) or "–"],
    ]
    return Section(_("Learning (service)"), (_("what"), _("value")), rows)


def _has_no_model(report: Json) -> bool:
    return report["learning"] is not None and not report["learning"]["calls"]


def _words(report: Json, _: Translate) -> Section:
    """What the words of the report mean."""
    arms = report["plan"]["protocol"]["arms"]
    rows = [
        (_("arm"), _("One way to answer. All arms get the same tasks.")),
        *((arm, _(MEMORIES[arm]) if arm in MEMORIES else _("the agent alone")) for arm in arms),
        *((_(word), _(meaning)) for word, meaning in WORDS.items()),
        (_p_name(report, _), _p_meaning(report, _)),
    ]
    return Section(_("Words of this report"), (_("word"), _("meaning")), rows)


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


def _p_name(report: Json, _: Translate) -> str:
    return _("p (sign test)") if report.get("partial_scores") else _("p")


def _p_meaning(report: Json, _: Translate) -> str:
    if report.get("partial_scores"):
        return _(
            "How often chance alone makes as many tasks better or worse, whatever the size of the"
            " change. A difference counts as shown if p is below .05 and the interval leaves out 0."
        )
    return _(
        "How often chance alone makes a difference at least as large. A difference counts as shown"
        " if p is below .05 and the interval leaves out 0."
    )


def _pair(row: Json) -> str:
    return f"{row['first']} − {row['second']}"


def _count(value: int, _: Translate) -> str:
    return str(value) if value else _("0 (NEVER)")


def _number(value: Any, _: Translate, digits: int = 0) -> str:
    return _("unknown") if value is None else f"{value:,.{digits}f}"


def _usd(value: float | None, _: Translate) -> str:
    return _("unknown") if value is None else f"${value:.6f}"


def _ids(ids: Sequence[str], _: Translate, max_ids: int) -> str:
    shown = ", ".join(ids[:max_ids])
    more = len(ids) - max_ids
    return _("%(ids)s and %(count)s more") % {"ids": shown, "count": more} if more > 0 else shown
