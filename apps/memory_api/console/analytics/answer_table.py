"""The table below the chart of a question: readable headings, shares in percent with their interval
drawn, the text of a bullet below its key, and one page of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from markupsafe import Markup

from memory_api.analytics.questions import Question
from memory_api.console.analytics.names import VALUES, heading, value_name
from memory_api.console.rendering import (
    format_actor,
    format_number,
    format_points,
    format_share,
    short_id,
)
from memory_api.console.stored_reasons import translate_reason
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
FIRST_COLUMNS = ("playbook", *BULLET_COLUMNS[:2], "day", "week", *INTERVALS)
"""Columns that come first: what a row is about, and its answer."""
LAST_COLUMNS = ("section", "other_section", "status", "other_status", "pinned")
ACTORS = ("created_by", "changed_by")
REASONS = ("reason", "created_reason")
SHARED = ("playbook", "basis", "pinned")
DIGITS = {"mean_seconds": 1, "usefulness": 2}
"""Column → digits after the point. Others have up to four."""
SHARES = frozenset({*INTERVALS, "earlier_rate", "recent_rate", "survival"})


WHOLE = {"playbook": N_("all"), "week": N_("whole period"), "error_category": N_("no category")}
"""Columns whose null has a name."""
STAGES = tuple(VALUES["stage"])


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
    visit: Visit,
    question: Question,
    names: Sequence[str],
    rows: Sequence[dict[str, Any]],
    page: int,
) -> AnswerTable:
    """The rows of a page, from 1. Columns without any value are left out, and those of `SHARED` if
    all rows have the same.
    """
    if question is Question.FUNNEL:
        names, rows = _stages_as_columns(rows)
    start = (page - 1) * ROWS_PER_PAGE
    shown = rows[start : start + ROWS_PER_PAGE]
    folded = {name for name, key in TEXT_OF_KEY.items() if key in names}
    folded |= {end for name in names if name in INTERVALS for end in INTERVALS[name]}
    folded |= {count for name in names if name in COUNTS for count in COUNTS[name]}
    folded |= {"always_with", "net_count"}
    folded |= {name for name in names if all(row[name] is None for row in rows)}
    folded |= {name for name in SHARED if len({row.get(name) for row in rows}) == 1}
    kept = sorted((name for name in names if name not in folded), key=_place)
    columns = [(heading(question, name, visit.translation), _style(name, shown)) for name in kept]
    cells = [[_cell(visit, name, row) for name in kept] for row in shown]
    return AnswerTable(columns, cells, start + 1, len(rows))


def _stages_as_columns(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """One row for each playbook and day, with a column for each stage."""
    days: dict[Any, dict[str, Any]] = {}
    for row in rows:
        names = {"playbook": row["playbook"], "day": row["day"]}
        entry = days.setdefault((row["playbook"], row["day"]), names | dict.fromkeys(STAGES, 0))
        entry[row["stage"]] = row["count"]
    return ["playbook", "day", *STAGES], list(days.values())


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
        whole = WHOLE.get(name) if name != "playbook" or "week" in row else None
        return None if whole is None else visit.translation.gettext(whole)
    if name in SHARES:
        return _share(visit, name, row)
    if name in PAGES_OF_COLUMNS:
        shown = short_id(value) if isinstance(value, UUID) else value
        return _link(visit.link(PAGES_OF_COLUMNS[name], str(value)), shown)
    if name in BULLET_COLUMNS and playbook:
        link = _link(visit.link("playbooks", playbook, "bullets", str(value)), value)
        content = next((row.get(text) for text, key in TEXT_OF_KEY.items() if key == name), None)
        return _with_text(link, content)
    if name in ACTORS:
        return format_actor(str(value), visit.translation)
    if name == "usefulness" and not (row["helpful"] or row["harmful"]):
        return None
    if isinstance(value, str):
        text = value_name(name, value, visit.translation)
        return _shorten(translate_reason(text, visit.translation) if name in REASONS else text)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None  # type: ignore[misc]
    if name in DIGITS:
        return format_number(value, DIGITS[name])
    return value


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

    def show(share: float) -> str:
        if name == "difference":
            return format_points(share, visit.translation)
        return format_share(share)

    value = row[name]
    low_name, high_name = INTERVALS.get(name, ("", ""))
    low, high = row.get(low_name), row.get(high_name)
    of = visit.translation.gettext("%(part)s of %(all)s")
    part, whole = (row.get(count) for count in COUNTS.get(name, ("", "")))
    counts = "" if whole is None else of % {"part": part, "all": whole}
    if low is None or high is None:
        return Markup('{} <small class="soft">{}</small>').format(show(value), counts)
    start, width = (-1.0, 2.0) if name == "difference" else (0.0, 1.0)
    places = [round((each - start) / width * 100, 1) for each in (low, high, value)]
    zero = Markup('<path d="M50 0V10" class="zero"/>') if start else Markup("")
    drawn = Markup(
        '<svg class="interval" viewBox="0 0 100 10" aria-hidden="true" focusable="false">{}'
        '<path d="M{} 5H{}"/><circle cx="{}" cy="5" r="3"/></svg>'
    ).format(zero, *places)
    words = visit.translation.gettext("%(low)s to %(high)s")
    span = words % {"low": show(low), "high": show(high)}
    text = f"{counts} · {span}" if counts else span
    return Markup('{}{} <small class="soft">{}</small>').format(show(value), drawn, text)
