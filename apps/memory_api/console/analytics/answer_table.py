"""The table below the chart of a question: readable headings, shares in percent with their interval
drawn, the text of a bullet below its key, and one page of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from babel.numbers import format_percent
from markupsafe import Markup

from memory_api.console.rendering import short_id
from memory_api.console.translations import N_
from memory_api.console.visit import Visit

ROWS_PER_PAGE = 50
MAX_TEXT_LENGTH = 160
"""Characters of a text that a table shows. CSV has all."""
MAX_SHORT_LENGTH = 40
"""Characters of a value that a table shows on one line."""
PAGES_OF_COLUMNS = {
    "playbook": "playbooks",
    "run_id": "runs",
    "created_run_id": "runs",
    "trace_id": "traces",
}
BULLET_COLUMNS = ("key", "other_key", "merged_into")
TEXT_OF_KEY = {"content": "key", "other_content": "other_key"}
"""Columns that are shown below the key of their bullet."""
INTERVALS = {
    "helpful_rate": ("low", "high"),
    "rate": ("rate_low", "rate_high"),
    "with_rate": ("with_low", "with_high"),
    "without_rate": ("without_low", "without_high"),
    "difference": ("low", "high"),
}
"""Column → the ends of its 95 % interval, which are shown and drawn with it."""
COUNTS = {
    "rate": ("successes", "runs"),
    "with_rate": ("with_successes", "with_runs"),
    "without_rate": ("without_successes", "without_runs"),
}
"""Column → the counts that it is the share of, which are shown with it."""
FIRST_COLUMNS = ("playbook", *BULLET_COLUMNS[:2], "day", "week", "month", *INTERVALS)
"""Columns that come first: what a row is about, and its answer."""
LAST_COLUMNS = ("section", "other_section", "status", "other_status", "pinned")
SHARES = frozenset({*INTERVALS, "earlier_rate", "recent_rate", "survival"})
HEADINGS: Mapping[str, str] = {
    "playbook": N_("Playbook"),
    "key": N_("Bullet"),
    "other_key": N_("Other bullet"),
    "section": N_("Section"),
    "other_section": N_("Section of the other"),
    "status": N_("Status"),
    "other_status": N_("Status of the other"),
    "pinned": N_("Pinned"),
    "helpful": N_("Helpful"),
    "harmful": N_("Harmful"),
    "neutral": N_("Neutral"),
    "helpful_count": N_("Helpful"),
    "harmful_count": N_("Harmful"),
    "neutral_count": N_("Neutral"),
    "net_count": N_("Helpful less harmful"),
    "helpful_rate": N_("Share of helpful"),
    "usefulness": N_("Usefulness"),
    "served_count": N_("Served"),
    "last_served_at": N_("Last served"),
    "created_at": N_("Created"),
    "created_by": N_("Created by"),
    "created_reason": N_("Reason"),
    "created_run_id": N_("Run"),
    "revision": N_("Revision"),
    "changed_at": N_("Changed"),
    "change_type": N_("Change"),
    "changed_by": N_("Changed by"),
    "merged_into": N_("Merged into"),
    "reason": N_("Reason"),
    "run_id": N_("Run"),
    "run_kind": N_("Step"),
    "trace_id": N_("Trace"),
    "memory_id": N_("Memory"),
    "retrieval_id": N_("Retrieval"),
    "day": N_("Day"),
    "week": N_("Week of"),
    "month": N_("Month"),
    "version": N_("Version"),
    "version_count": N_("Versions"),
    "active_count": N_("Active bullets"),
    "added_count": N_("Added"),
    "updated_count": N_("Updated"),
    "removed_count": N_("Removed"),
    "created_count": N_("Created"),
    "changed_count": N_("Changed"),
    "merged_count": N_("Merged"),
    "quarantined_count": N_("Quarantined"),
    "released_count": N_("Released"),
    "archived_count": N_("Archived"),
    "deleted_count": N_("Deleted"),
    "restored_count": N_("Restored"),
    "born_at": N_("Added"),
    "born_month": N_("Added in"),
    "first_helpful_at": N_("First helpful verdict"),
    "days_to_first_helpful": N_("Days until then"),
    "retired_at": N_("Retired"),
    "retired_by": N_("By"),
    "days_lived": N_("Days in use"),
    "event": N_("Event"),
    "at_risk_count": N_("Bullets at risk"),
    "event_count": N_("Events"),
    "censored_count": N_("Still without it"),
    "survival": N_("Share that is left"),
    "std_error": N_("Standard error"),
    "judge": N_("Judge"),
    "model": N_("Model"),
    "earlier_count": N_("Verdicts before"),
    "earlier_rate": N_("Helpful before"),
    "recent_count": N_("Verdicts since"),
    "recent_rate": N_("Helpful since"),
    "difference": N_("Difference"),
    "is_significant": N_("Beyond chance"),
    "stage_number": N_("No."),
    "stage": N_("Stage"),
    "count": N_("Count"),
    "basis": N_("Measured by"),
    "with_runs": N_("Runs with it"),
    "with_successes": N_("Successes with it"),
    "with_rate": N_("Success with it"),
    "without_runs": N_("Runs without it"),
    "without_successes": N_("Successes without it"),
    "without_rate": N_("Success without it"),
    "runs": N_("Runs"),
    "successes": N_("Successes"),
    "rate": N_("Success"),
    "retrieval_count": N_("Retrievals"),
    "empty_count": N_("Without a bullet"),
    "weak_count": N_("With a weak match"),
    "median_best_score": N_("Median of the best score"),
    "kind": N_("Kind"),
    "query": N_("Query"),
    "best_score": N_("Best score"),
    "bullet_count": N_("Bullets"),
    "cosine": N_("Likeness"),
    "found_at": N_("Found"),
    "task_key": N_("Task"),
    "reported_outcome": N_("Reported"),
    "check_outcome": N_("By the check"),
    "outcome": N_("Outcome"),
    "purpose": N_("Purpose"),
    "provider": N_("Provider"),
    "call_count": N_("Calls"),
    "failed_count": N_("Failed"),
    "unpriced_count": N_("Without a price"),
    "input_tokens": N_("Tokens in"),
    "output_tokens": N_("Tokens out"),
    "token_count": N_("Tokens"),
    "cost_usd": N_("Cost (US$)"),
    "usd_per_trace": N_("US$ per trace"),
    "usd_per_lesson": N_("US$ per lesson"),
    "usd_per_surviving_bullet": N_("US$ per bullet in use"),
    "is_surviving": N_("In use"),
    "lesson_count": N_("Lessons"),
    "trace_count": N_("Traces"),
    "surviving_count": N_("Bullets in use"),
    "confidence_band": N_("Confidence"),
    "mean_confidence": N_("Mean confidence"),
    "state": N_("State"),
    "run_count": N_("Runs"),
    "right_count": N_("Right"),
    "wrong_count": N_("Wrong"),
    "question_count": N_("Questions to a person"),
    "replan_count": N_("New plans"),
    "mean_seconds": N_("Mean seconds"),
    "error_category": N_("Error category"),
    "reflection_count": N_("Reflections"),
}
"""Column of a view → its heading."""


@dataclass(frozen=True)
class AnswerTable:
    """One page of the rows of an answer. `columns` are headings with the style of their cells."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]
    first: int
    """The number of the first row, from 1."""
    count: int
    """Rows on all pages."""

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1


def build_table(
    visit: Visit, names: Sequence[str], rows: Sequence[dict[str, Any]], page: int
) -> AnswerTable:
    """The rows of a page, from 1. A column of playbooks is left out if all rows have the same."""
    start = (page - 1) * ROWS_PER_PAGE
    shown = rows[start : start + ROWS_PER_PAGE]
    folded = {name for name, key in TEXT_OF_KEY.items() if key in names}
    folded |= {end for name in names if name in INTERVALS for end in INTERVALS[name]}
    folded |= {count for name in names if name in COUNTS for count in COUNTS[name]}
    if len({row.get("playbook") for row in rows}) == 1:
        folded.add("playbook")
    kept = sorted((name for name in names if name not in folded), key=_place)
    columns = [(visit.translation.gettext(HEADINGS[name]), _style(name, shown)) for name in kept]
    cells = [[_cell(visit, name, row) for name in kept] for row in shown]
    return AnswerTable(columns, cells, start + 1, len(rows))


def _place(name: str) -> int:
    if name in FIRST_COLUMNS:
        return FIRST_COLUMNS.index(name)
    return (
        len(FIRST_COLUMNS) + LAST_COLUMNS.index(name) + 1
        if name in LAST_COLUMNS
        else len(FIRST_COLUMNS)
    )


def _style(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """Numbers, long texts, or short values."""
    if name in BULLET_COLUMNS:
        return "wide"
    values = [row[name] for row in rows if row[name] is not None]
    if values and all(isinstance(value, int | float) for value in values):
        return "number"
    is_long = any(isinstance(v, str) and len(v) > MAX_SHORT_LENGTH for v in values)
    return "wide" if is_long else "short"


def _cell(visit: Visit, name: str, row: dict[str, Any]) -> Any:
    """A value. Names of bullets, playbooks, runs and traces are links."""
    value, playbook = row[name], str(row.get("playbook") or "")
    if value is None:
        return None
    if name in SHARES:
        return _share(visit, name, row)
    if name in PAGES_OF_COLUMNS:
        shown = short_id(value) if isinstance(value, UUID) else value
        return _link(visit.link(PAGES_OF_COLUMNS[name], str(value)), shown)
    if name in BULLET_COLUMNS and playbook:
        link = _link(visit.link("playbooks", playbook, "bullets", str(value)), value)
        content = next((row.get(text) for text, key in TEXT_OF_KEY.items() if key == name), None)
        return _with_text(link, content)
    return _shorten(value) if isinstance(value, str) else value


def _link(address: str, shown: Any) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address, shown)


def _with_text(link: Markup, content: str | None) -> Markup:
    if not content:
        return link
    return link + Markup(' <small class="soft">{}</small>').format(_shorten(content))


def _shorten(text: str) -> str:
    return f"{text[:MAX_TEXT_LENGTH]}…" if len(text) > MAX_TEXT_LENGTH else text


def _share(visit: Visit, name: str, row: dict[str, Any]) -> Markup:
    """A share in percent. The counts and the interval follow in words, and the interval as a line
    with a mark at the share.
    """

    def percent(share: float) -> str:
        return format_percent(share, "0 %", locale=visit.translation.locale)

    value = row[name]
    low_name, high_name = INTERVALS.get(name, ("", ""))
    low, high = row.get(low_name), row.get(high_name)
    if low is None or high is None:
        return Markup("{}").format(percent(value))
    of = visit.translation.gettext("%(part)s of %(all)s")
    part, whole = (row.get(count) for count in COUNTS.get(name, ("", "")))
    counts = "" if whole is None else f"{of % {'part': part, 'all': whole}} · "
    start, width = (-1.0, 2.0) if name == "difference" else (0.0, 1.0)
    places = [round((each - start) / width * 100, 1) for each in (low, high, value)]
    zero = Markup('<path d="M50 0V10" class="zero"/>') if start else Markup("")
    drawn = Markup(
        '<svg class="interval" viewBox="0 0 100 10" aria-hidden="true" focusable="false">{}'
        '<path d="M{} 5H{}"/><circle cx="{}" cy="5" r="3"/></svg>'
    ).format(zero, *places)
    words = visit.translation.gettext("%(low)s to %(high)s")
    span = words % {"low": percent(low), "high": percent(high)}
    text = f"{counts}{span}"
    return Markup('{}{} <small class="soft">{}</small>').format(percent(value), drawn, text)
