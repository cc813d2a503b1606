"""How the answer of each question is drawn: which columns, by what, and how rows are summed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any

from memory_api.analytics.questions import MAX_ROWS, Question
from memory_api.console.analytics.names import HEADINGS, value_name
from memory_api.console.charts import Axis, Chart, ChartKind, Series, draw_chart
from memory_api.console.rendering import (
    NO_VALUE,
    format_day,
    format_number,
    format_points,
    format_share,
    format_usd,
)
from memory_api.console.translations import N_, Translation

MAX_BARS = 20
"""Bars of a chart by name. The statement decides which rows come first."""
MAX_LISTED = 1_000
"""Rows of a list, and of a chart by bullet."""
MAX_SERIES = 6
"""Lines or colors of a chart."""
NAMED_COLUMNS = ("key", "section", "error_category", "kind")
"""Columns whose values are names. All are labels of the axis."""


@dataclass(frozen=True)
class ChartForm:
    """A chart of `values` (column → name) summed by the column `by`. `step` groups numbers into
    ranges of this width. `only` selects rows, if there are such rows. `split` draws a series for
    each of these values of a column. `is_percent`: the values are shares, which are not added up.

    Values of several playbooks are added up, unless the chart `is_by_playbook`: then each
    playbook is a series.
    """

    by: str
    values: Mapping[str, str]
    kind: ChartKind = "bar"
    step: float | None = None
    only: tuple[str, Any] | None = None
    split: tuple[str, Mapping[str, str]] | None = None
    is_usd: bool = False
    is_percent: bool = False
    is_by_playbook: bool = False
    start: float | None = None
    """The value before the first row, of a line that holds its value between the rows."""
    limit: int = MAX_ROWS


_COST = {"cost_usd": N_("Cost")}
_VERDICTS = {"helpful_count": N_("Helpful"), "harmful_count": N_("Harmful")}
_DIFFERENCE = {"difference": N_("Difference")}
HARM = {"harmful_count", "quarantined_count", "wrong_count", "unmatched_count"}
"""Columns that are drawn in red."""

FORMS: Mapping[Question, ChartForm] = {
    Question.PLAYBOOK_SIZES: ChartForm(
        "day", {"active_count": N_("Active bullets")}, "step", is_by_playbook=True
    ),
    Question.CHURN: ChartForm(
        "day",
        {
            "created_count": N_("Created"),
            "changed_count": N_("Changed"),
            "quarantined_count": N_("Quarantined"),
            "deleted_count": N_("Deleted"),
        },
    ),
    Question.SURVIVAL: ChartForm(
        "day",
        {"survival": N_("Share")},
        "step",
        split=(
            "event",
            {
                "left_use": N_("Share in use"),
                "first_helpful_verdict": N_("Share without a helpful verdict"),
            },
        ),
        is_percent=True,
        is_by_playbook=True,
        start=1.0,
    ),
    Question.VERDICTS: ChartForm("day", _VERDICTS),
    Question.MOVERS: ChartForm("key", _VERDICTS, limit=MAX_LISTED),
    Question.VERDICT_DRIFT: ChartForm("key", _DIFFERENCE, limit=MAX_LISTED),
    Question.FUNNEL: ChartForm(
        "day",
        {"count": N_("Count")},
        split=(
            "stage",
            {
                "traces": N_("Traces"),
                "strategies_and_insights": N_("Lessons"),
                "bullets_created": N_("New bullets"),
            },
        ),
    ),
    Question.EFFECTS: ChartForm(
        "key",
        _DIFFERENCE,
        split=(
            "basis",
            {
                "randomized": N_("Measured by a random holdout"),
                "observational": N_("Observed: correlation, not cause"),
            },
        ),
        limit=MAX_LISTED,
    ),
    Question.IMPROVEMENT: ChartForm(
        "week",
        {"with_rate": N_("Success with advice"), "without_rate": N_("Success without advice")},
        "line",
        only=("playbook", None),
        limit=MAX_LISTED,
        is_percent=True,
    ),
    Question.COVERAGE: ChartForm(
        "day",
        {
            "strong_count": N_("Fits"),
            "weak_count": N_("Fits in part"),
            "unmatched_count": N_("None fits"),
        },
    ),
    Question.COSTS: ChartForm("day", _COST, is_usd=True),
    Question.AGENT_RUNS: ChartForm(
        "confidence_band",
        {
            "run_count": N_("Agent runs"),
            "right_count": N_("Right"),
            "wrong_count": N_("Wrong"),
        },
        step=0.1,
    ),
    Question.ERROR_CATEGORIES: ChartForm("error_category", {"reflection_count": N_("Reflections")}),
}


@dataclass(frozen=True, order=True)
class SeriesKey:
    """Which values a series has. `playbook` is None if the chart adds playbooks up, `part` is None
    if it is not split.
    """

    playbook: str | None
    part: str | None
    column: str


Sums = dict[Any, dict[SeriesKey, float]]
"""Group on the horizontal axis → series → value."""


def row_limit(question: Question) -> int:
    """The rows that a page loads: all that its chart sums, else those of a list."""
    return FORMS[question].limit if question in FORMS else MAX_LISTED


def chart_form(question: Question, rows: Sequence[Mapping[str, Any]]) -> ChartForm:
    """The form of a chart. Without a hold-out, the success of all runs is drawn."""
    form = FORMS[question]
    if question is Question.IMPROVEMENT and not any(
        r["with_runs"] or r["without_runs"] for r in rows
    ):
        return replace(form, values={"rate": N_("Success of all runs")})
    return form


def select_rows(form: ChartForm, rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The rows that a chart shows."""
    if form.split is not None:
        rows = [row for row in rows if row[form.split[0]] in form.split[1]]
    if form.values == _DIFFERENCE:  # an unknown effect has no bar
        rows = [row for row in rows if row["difference"] is not None]
    if form.only is None:
        return rows
    column, value = form.only
    return [row for row in rows if row[column] == value] or rows


def draw_answer(
    question: Question, title: str, rows: Sequence[Mapping[str, Any]], translation: Translation
) -> Chart | None:
    """The chart of an answer, with sums over the rows; None if the rows are the answer."""
    if question not in FORMS:
        return None
    form, _ = chart_form(question, rows), translation.gettext
    selected = select_rows(form, rows)
    playbooks = list(dict.fromkeys(row["playbook"] for row in selected))
    keys = _series_keys(form, selected, playbooks)
    sums = _sum_rows(form, selected, keys, is_named=len(playbooks) > 1)
    shown = list(sums)[:MAX_BARS] if form.by == "key" else list(sums)

    def format(value: float | None) -> str:
        if form.is_usd:
            return format_usd(value)
        if form.is_percent:
            return format_share(value)
        if form.values == _DIFFERENCE:
            return format_points(value, translation)
        return format_number(value)

    is_split = form.is_by_playbook and len(playbooks) > 1
    drawn_count = len({key.playbook for key in keys}) if is_split else len(playbooks)
    return draw_chart(
        form.kind,
        _(title),
        [_label(group, form, translation) for group in shown],
        [
            Series(
                _series_name(key, form, _),
                [sums[group].get(key) for group in shown],
                is_harm=key.column in HARM,
            )
            for key in keys
        ],
        format=format,
        label=_(HEADINGS[form.by]),
        summary=_limits((drawn_count, len(playbooks)), (len(shown), len(sums)), _),
        axis=Axis(
            is_named=form.by in NAMED_COLUMNS, positions=None if form.start is None else shown
        ),
        has_legend=form.split is not None,
    )


def _limits(playbooks: tuple[int, int], groups: tuple[int, int], _: Callable[[str], str]) -> str:
    """A sentence if the chart leaves something out. A pair is the number drawn and that of all."""
    if playbooks[0] < playbooks[1]:
        text = _("The chart shows %(count)s of %(total)s playbooks. Choose one above.")
        return text % {"count": playbooks[0], "total": playbooks[1]}
    if groups[0] < groups[1]:
        text = _("The chart shows the first %(count)s of %(total)s bullets.")
        return text % {"count": groups[0], "total": groups[1]}
    return ""


def _series_keys(
    form: ChartForm, rows: Sequence[Mapping[str, Any]], playbooks: Sequence[str | None]
) -> list[SeriesKey]:
    """The series of a chart, at most `MAX_SERIES`. A part without rows is not drawn."""
    parts: list[str | None] = [None]
    if form.split is not None:
        column, names = form.split
        found = {row[column] for row in rows}
        parts = [name for name in names if name in found]
    drawn: list[str | None] = [None]
    if form.is_by_playbook and len(playbooks) > 1:
        drawn = [str(name or NO_VALUE) for name in playbooks]
    columns = list(form.values)
    most = max(1, MAX_SERIES // max(1, len(parts) * len(columns)))
    return [SeriesKey(b, part, c) for b in drawn[:most] for part in parts for c in columns]


def _series_name(key: SeriesKey, form: ChartForm, _: Callable[[str], str]) -> str:
    names: Mapping[str, str] = form.split[1] if form.split is not None else {}
    what = names[key.part] if key.part is not None else form.values[key.column]
    return _(what) if key.playbook is None else f"{key.playbook}: {_(what)}"


def _sum_rows(
    form: ChartForm,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[SeriesKey],
    *,
    is_named: bool,
) -> Sums:
    """Group → series → sum. Days and ranges are in order and without gaps, other groups in the
    order of the rows. If `is_named`, a bullet is named together with its playbook.
    """
    sums: Sums = {}
    is_summed = form.split is None and not (form.is_by_playbook or form.is_percent)
    for row in rows:
        group = _group(row[form.by], form)
        if group is None:
            continue
        if is_named and form.by == "key":
            group = f"{group} ({row['playbook']})"
        entry = sums.setdefault(group, dict.fromkeys(keys, 0.0) if is_summed else {})
        for key in keys:
            if _is_of(key, row, form) and not (form.is_percent and row[key.column] is None):
                value = float(row[key.column] or 0)
                entry[key] = entry.get(key, 0.0) + value
    zeros = dict.fromkeys(keys, 0.0) if is_summed else {}
    if form.start is not None:
        return _held(sums, keys, form.start)
    if all(type(group) is date for group in sums):
        return {day: sums.get(day, zeros) for day in _days(sums, form)}
    if form.step is not None:
        return {group: sums.get(group, zeros) for group in _ranges(sums, form.step)}
    return sums


def _is_of(key: SeriesKey, row: Mapping[str, Any], form: ChartForm) -> bool:
    """Whether a row belongs to a series."""
    is_of_playbook = key.playbook in (None, str(row["playbook"] or NO_VALUE))
    is_of_part = form.split is None or row[form.split[0]] == key.part
    return is_of_playbook and is_of_part


def _group(value: Any, form: ChartForm) -> Any:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if form.step is not None:
        return math.floor(float(value) / form.step + 1e-9)  # the number of the range
    return value


def _held(sums: Sums, keys: Sequence[SeriesKey], start: float) -> Sums:
    """Each series from `start` at 0 to its last row; in between it holds its value."""
    held: Sums = {group: {} for group in sorted({0, *sums})} if sums else {}
    for key in keys:
        own = [group for group in held if key in sums.get(group, {})]
        value = start
        for group in held:
            if own and group <= own[-1]:
                value = held[group][key] = sums.get(group, {}).get(key, value)
    return held


def _days(sums: Sums, form: ChartForm) -> list[date]:
    """The days, or the Mondays, in order and without gaps."""
    days = sorted(sums)
    step = 7 if form.by == "week" else 1
    if not days:
        return days
    return [days[0] + timedelta(days=n) for n in range(0, (days[-1] - days[0]).days + 1, step)]


def _ranges(sums: Sums, step: float) -> range:
    """The numbers of the ranges without gaps. Ages start at 0."""
    if not sums:
        return range(0)
    return range(0 if step >= 1 else min(sums), max(sums) + 1)


def _label(group: Any, form: ChartForm, translation: Translation) -> str:
    if isinstance(group, date):
        return format_day(group, translation)
    if form.step is not None:
        ends = (group * form.step, (group + 1) * form.step)
        return "–".join(format_number(end, 1) for end in ends)
    if isinstance(group, float | int):
        return format_number(group)
    return value_name(form.by, str(group), translation)
