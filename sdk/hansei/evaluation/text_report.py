"""The tables of a report: rows for the terminal and for HTML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hansei._model import Json
from hansei.evaluation.plan import PHASES
from hansei.evaluation.statistics import format_p

MAX_SHOWN_IDS = 12
MAX_SHOWN_FAILURES = 20


@dataclass(frozen=True)
class Section:
    """A table with a title and lines of text below it."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()


def sections(report: Json) -> list[Section]:
    made = [
        _accuracy(report),
        _comparisons(report),
        _gains(report),
        _controls(report),
        _groups(report),
        _advice(report),
        _costs(report),
        _learning(report),
        _curve(report),
        _failures(report),
    ]
    return [section for section in made if section.rows or section.lines]


def headline(report: Json) -> str:
    """The result in one sentence, with what is not known."""
    row = next((c for c in report["comparisons"] if c["second"] == "none"), None)
    if row is None:
        return "There is no comparison: it needs the arm `none` and another one."
    words = (
        f"`{row['first']}` against `none`, {report['primary']}: {_points(row)}, p {_p(row['p'])}"
    )
    if _is_unused(report, row["first"]):
        return f"NOT MEASURED: `{row['first']}` never got advice. {words}."
    if row["low"] > 0 and row["p"] < 0.05:
        return f"BETTER. {words}."
    if row["high"] < 0 and row["p"] < 0.05:
        return f"WORSE. {words}."
    if row["low"] > 0 or row["high"] < 0:
        return (
            f"UNCERTAIN. {words}. The interval, an approximation, leaves out 0; the exact test does"
            f" not, because only {row['better'] + row['worse']} tasks differ."
        )
    return f"NO DIFFERENCE SHOWN. {words}. {_needed(row)}"


def _is_unused(report: Json, arm: str) -> bool:
    """Whether the arm never got advice, so that nothing was measured."""
    return any(r["arm"] == arm and r["measures_nothing"] for r in report["advice"])


def _accuracy(report: Json) -> Section:
    names: dict[str, str] = {"primary": f"DECIDES: {report['primary']}", **PHASES}
    rows = [
        [names[r["phase"]], r["arm"], str(r["tasks"]), _percent(r["mean"]),
         f"{_percent(r['low'])} to {_percent(r['high'])}", str(r["failed"])]
        for r in report["accuracy"]
        if r["tasks"] and not (r["phase"] == "held_out" and report["primary"] == "held-out tasks")
    ]  # fmt: skip
    header = ("phase", "arm", "tasks", "right", "95 % interval", "failed calls")
    return Section("Accuracy", header, rows)


def _comparisons(report: Json) -> Section:
    rows: list[Sequence[str]] = []
    lines: list[str] = []
    for row in report["comparisons"]:
        pair = f"{row['first']} − {row['second']}"
        rows.append([pair, str(row["tasks"]), _signed(row["mean"]), _range(row), _p(row["p"]),
                     str(row["better"]), str(row["worse"])])  # fmt: skip
        is_clear = row["p"] < 0.05 and (row["low"] > 0 or row["high"] < 0)
        if not is_clear and not _is_unused(report, row["first"]):
            lines.append(f"{pair}: {_needed(row)}")
        for name, verb in (("became_right", "better"), ("became_wrong", "worse")):
            if row[name]:
                lines.append(f"{pair}, {verb}: {_ids(row[name])}")
    header = ("difference", "tasks", "points", "95 % interval", "p", "better", "worse")
    return Section(f"Paired differences: {report['primary']}", header, rows, lines)


def _needed(row: Json) -> str:
    """How much more data shows a difference of 5 points."""
    more = row["tasks_needed"] - row["tasks"]
    if more <= 0:
        return "A difference of 5 points would be seen with this many tasks (power 80 %)."
    return (
        f"To see a difference of 5 points, {row['repeats_needed']} more repeats are needed, or "
        f"{more} more tasks (power 80 %)."
    )


def _gains(report: Json) -> Section:
    rows = [
        [row["arm"], *(_gain(row[name]) for name in GAINS)]
        for row in report["agentcl"]
        if any(row[name] for name in GAINS)
    ]
    return Section("Gains as in AgentCL, in points", ("arm", *GAINS.values()), rows)


GAINS = {
    "plasticity": "plasticity (first pass − none)",
    "stability": "stability (second − first pass)",
    "second_pass_gain": "second pass − none",
    "generalization": "generalization (held out − none)",
}


def _gain(value: Json | None) -> str:
    return "not measured" if value is None else f"{_signed(value['mean'])} [{_range(value)}]"


def _controls(report: Json) -> Section:
    rows = [
        [f"{r['first']} − {r['second']}", str(r["tasks"]), _signed(r["mean"]), _range(r),
         _p(r["p"]), _ids(r["became_wrong"]) or "none"]
        for r in report["controls"]
    ]  # fmt: skip
    header = ("difference", "controls", "points", "95 % interval", "p", "harmed")
    return Section("Controls: tasks that need no advice", header, rows)


def _groups(report: Json) -> Section:
    arms = report["plan"]["protocol"]["arms"]
    rows = [[r["group"], *(_percent(r["arms"].get(arm)) for arm in arms)] for r in report["groups"]]
    return Section(f"Accuracy by group: {report['primary']}", ("group", *arms), rows)


def _advice(report: Json) -> Section:
    rows = [
        [r["arm"], str(r["calls"]), _count(r["rendered"]), _count(r["cited"]),
         "unknown" if r["followed"] is None else f"{_count(r['followed'])} of {r['judged']}",
         f"{r['tokens']:,.0f}"]
        for r in report["advice"]
    ]  # fmt: skip
    header = ("arm", "calls", "with advice", "cited", "followed", "advice tokens a call")
    note = "Followed: of the attempts of the stream whose bullets a reflection judged."
    return Section("Was the advice used?", header, rows, [note] if rows else [])


def _costs(report: Json) -> Section:
    rows = [
        [r["arm"], str(r["calls"]), _number(r["input_tokens"]), _number(r["output_tokens"]),
         _usd(r["usd"]), _number(r["seconds"], 1), _usd(r["total_usd"])]
        for r in report["costs"]
    ]  # fmt: skip
    header = (
        "arm",
        "answers",
        "input tokens",
        "output tokens",
        "dollars",
        "seconds",
        "total dollars",
    )
    lines = [
        f"For an answer, on average. The whole run, with learning: {_usd(report['total_usd'])}."
    ]
    if any(r["usd"] is None for r in report["costs"]):
        lines.append(
            "For the dollars of the agent, let it return `usage.usd`, or its tokens, and pass "
            "--input-price and --output-price."
        )
    return Section("Cost of the agent", header, rows, lines)


def _learning(report: Json) -> Section:
    learning = report["learning"]
    if learning is None:
        return Section("Learning")
    rows = [
        ["traces", str(learning["traces"])],
        ["model calls", str(learning["calls"])],
        ["model calls a trace", _number(learning["calls_per_trace"], 2)],
        ["tokens in and out", f"{learning['input_tokens']:,} and {learning['output_tokens']:,}"],
        ["dollars", _usd(learning["usd"])],
        ["dollars a trace", _usd(learning["usd_per_trace"])],
        ["active bullets at the end", _number(learning["bullets"])],
        ["of these, more often helpful than harmful", _number(learning["helpful_bullets"])],
        ["dollars a helpful bullet", _usd(learning["usd_per_helpful_bullet"])],
        ["project", ", ".join(learning["projects"])],
    ]
    return Section("Learning (service)", ("what", "value"), rows)


def _curve(report: Json) -> Section:
    arms = report["plan"]["protocol"]["arms"]
    rows = [
        [str(row["window"]), *(_percent(row["arms"].get(arm)) for arm in arms),
         _number(row["bullets"])]
        for row in report["curve"]
    ]  # fmt: skip
    return Section("Learning curve", ("window", *arms, "bullets after it"), rows)


def _failures(report: Json) -> Section:
    failures = report["failures"]
    rows = [[f["task_id"], f["arm"], f["phase"], f["error"]] for f in failures[:MAX_SHOWN_FAILURES]]
    more = len(failures) - len(rows)
    lines = [f"and {more} more: see report.json"] if more else []
    return Section(
        "Failed calls (counted as wrong)", ("task", "arm", "phase", "error"), rows, lines
    )


def _points(row: Json) -> str:
    return f"{_signed(row['mean'])} points (95 % interval {_range(row)})"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f}"


def _range(row: Json) -> str:
    return f"{_signed(row['low'])} to {_signed(row['high'])}"


def _p(p: float) -> str:
    text = format_p(p)
    return text if text.startswith("<") else f"= {text}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _count(value: int | None) -> str:
    return "unknown" if value is None else "0 (NEVER)" if value == 0 else str(value)


def _number(value: Any, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:,.{digits}f}"


def _usd(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.6f}"


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MAX_SHOWN_IDS} more" if len(ids) > MAX_SHOWN_IDS else ""
    return ", ".join(ids[:MAX_SHOWN_IDS]) + more
