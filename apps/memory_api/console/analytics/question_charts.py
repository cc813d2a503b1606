"""How the answer of each question is drawn: which columns, by what, and how rows are summed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from babel.core import Locale

from apps.memory_api.analytics.questions import MAX_ROWS, Question
from apps.memory_api.console.charts import Chart, ChartKind, Series, draw_chart
from apps.memory_api.console.rendering import format_day, format_number, format_usd
from apps.memory_api.console.translations import N_, Translation

MAX_BARS = 20
"""Bars of a chart by name. The statement decides which rows come first."""
ROWS = N_("Rows")


@dataclass(frozen=True)
class ChartForm:
    """A chart of `values` (column → name) summed by the column `by`. Without values, rows are
    counted. `step` groups numbers into ranges of this width. `only` selects rows.
    """

    by: str
    values: Mapping[str, str]
    kind: ChartKind = "bar"
    step: float | None = None
    only: tuple[str, Any] | None = None
    digits: int = 0
    is_usd: bool = False
    limit: int = MAX_ROWS


_COST = {"cost_usd": N_("Cost")}
_VERDICTS = {"helpful_count": N_("Helpful"), "harmful_count": N_("Harmful")}
_DIFFERENCE = {"difference": N_("Difference")}

FORMS: Mapping[Question, ChartForm] = {
    Question.BULLETS: ChartForm("section", {"helpful": N_("Helpful"), "harmful": N_("Harmful")}),
    Question.BULLET_VERSIONS: ChartForm("changed_at", {}),
    Question.PLAYBOOK_SIZES: ChartForm("day", {"active_count": N_("Active bullets")}, "step"),
    Question.CHURN: ChartForm(
        "day",
        {
            "created_count": N_("Created"),
            "changed_count": N_("Changed"),
            "quarantined_count": N_("Quarantined"),
            "deleted_count": N_("Deleted"),
        },
    ),
    Question.BULLET_LIFETIMES: ChartForm("days_lived", {}, step=5),
    Question.SURVIVAL: ChartForm(
        "day",
        {"survival": N_("Share without retirement")},
        "step",
        only=("event", "retirement"),
        digits=2,
    ),
    Question.VERDICTS: ChartForm("day", _VERDICTS),
    Question.MOVERS: ChartForm("key", _VERDICTS, limit=1000),
    Question.VERDICT_DRIFT: ChartForm("key", _DIFFERENCE, digits=2, limit=1000),
    Question.FUNNEL: ChartForm("stage", {"count": N_("Count")}),
    Question.EFFECTS: ChartForm(
        "key", _DIFFERENCE, only=("basis", "observational"), digits=2, limit=1000
    ),
    Question.COVERAGE: ChartForm(
        "day",
        {
            "retrieval_count": N_("Queries"),
            "weak_count": N_("Weak"),
            "empty_count": N_("Empty"),
        },
    ),
    Question.UNCOVERED_QUERIES: ChartForm("created_at", {}),
    Question.NEAR_DUPLICATES: ChartForm("cosine", {}, step=0.01, digits=2, limit=1000),
    Question.CONTRADICTIONS: ChartForm("found_at", {}, limit=1000),
    Question.COSTS: ChartForm("day", _COST, is_usd=True),
    Question.TRACE_COSTS: ChartForm("created_at", _COST, is_usd=True),
    Question.LESSON_COSTS: ChartForm("kind", _COST, is_usd=True),
    Question.BULLET_COSTS: ChartForm("key", _COST, is_usd=True, limit=1000),
    Question.UNIT_COSTS: ChartForm(
        "month", {"usd_per_surviving_bullet": N_("Cost per surviving bullet")}, is_usd=True
    ),
    Question.AGENT_RUNS: ChartForm(
        "confidence_band",
        {
            "run_count": N_("Agent runs"),
            "right_count": N_("Right"),
            "wrong_count": N_("Wrong"),
        },
        digits=1,
    ),
    Question.ERROR_CATEGORIES: ChartForm("error_category", {"reflection_count": N_("Traces")}),
}


def draw_answer(
    question: Question, title: str, rows: Sequence[Mapping[str, Any]], translation: Translation
) -> Chart:
    """The chart of an answer. Its numbers are sums over the rows."""
    form, _, locale = FORMS[question], translation.gettext, translation.locale
    values = form.values or {"": ROWS}
    sums = _sum_rows(form, rows)
    shown = list(sums)[:MAX_BARS] if form.by == "key" else list(sums)

    def format(value: float | None) -> str:
        if form.is_usd:
            return format_usd(value, locale)
        fraction = form.digits if form.values and form.step is None else 0
        return format_number(value, locale, fraction)

    return draw_chart(
        form.kind,
        _(title),
        [_label(group, form, locale) for group in shown],
        [Series(_(name), [sums[group][column] for group in shown])
         for column, name in values.items()],
        format=format,
        label=form.by,
    )  # fmt: skip


def _sum_rows(form: ChartForm, rows: Sequence[Mapping[str, Any]]) -> dict[Any, dict[str, float]]:
    """Group → column → sum. Days and ranges are in order and without gaps, other groups in the
    order of the rows.
    """
    sums: dict[Any, dict[str, float]] = {}
    for row in rows:
        if form.only is not None and row[form.only[0]] != form.only[1]:
            continue
        if form.only == ("event", "retirement") and row["born_month"] is not None:
            continue
        group = _group(row[form.by], form)
        if group is None:
            continue
        entry = sums.setdefault(group, dict.fromkeys(form.values or {"": ""}, 0.0))
        for column in entry:
            entry[column] += float(row[column] or 0) if column else 1
    if all(type(group) is date for group in sums):
        return _without_gaps(sums, form)
    if all(isinstance(group, float | int) for group in sums):
        return dict(sorted(sums.items()))
    return sums


def _group(value: Any, form: ChartForm) -> Any:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if form.step is not None:
        return round(math.floor(float(value) / form.step + 1e-9) * form.step, 6)
    return value


def _without_gaps(
    sums: Mapping[date, dict[str, float]], form: ChartForm
) -> dict[Any, dict[str, float]]:
    days = sorted(sums)
    if not days or form.by == "month":
        return {day: sums[day] for day in days}
    zeros = dict.fromkeys(form.values or {"": ""}, 0.0)
    count = (days[-1] - days[0]).days + 1
    every = [days[0] + timedelta(days=number) for number in range(count)]
    return {day: sums.get(day, zeros) for day in every}


def _label(group: Any, form: ChartForm, locale: Locale) -> str:
    if isinstance(group, date):
        return format_day(group, locale)
    if isinstance(group, float | int):
        return format_number(group, locale, form.digits)
    return str(group)
