"""The questions of analytics: a chart, a table, the statement, and the rows as CSV."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response
from markupsafe import Markup

from memory_api.analytics.questions import (
    MAX_ROWS,
    Question,
    has_period,
    question_filters,
    question_title,
)
from memory_api.analytics.router import DEFAULT_PERIOD, get_analytics
from memory_api.analytics.schemas import AnalyticsAnswer
from memory_api.api.deps import Reader, Session
from memory_api.console.analytics.question_charts import FORMS, draw_answer
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.rendering import render_page, short_id
from memory_api.console.translations import N_
from memory_api.console.visit import Visit
from memory_api.core.errors import InvalidRequest

router = APIRouter(prefix="/console/analytics", route_class=ConsoleRoute, include_in_schema=False)

MAX_SHOWN_ROWS = 200
MAX_TEXT_LENGTH = 160
"""Characters of a text that a table shows. CSV has all."""
MAX_SHORT_LENGTH = 40
"""Characters of a value that a table shows on one line."""
PAGES_OF_COLUMNS = {"playbook": "playbooks", "run_id": "runs", "trace_id": "traces"}
BULLET_COLUMNS = ("key", "other_key", "merged_into")
GROUPS = {
    N_("Bullets"): (
        Question.BULLETS,
        Question.BULLET_VERSIONS,
        Question.PLAYBOOK_SIZES,
        Question.CHURN,
        Question.BULLET_LIFETIMES,
        Question.SURVIVAL,
        Question.NEAR_DUPLICATES,
        Question.CONTRADICTIONS,
    ),
    N_("What helps, what harms"): (
        Question.IMPROVEMENT,
        Question.MOVERS,
        Question.VERDICT_DRIFT,
        Question.VERDICTS,
        Question.EFFECTS,
    ),
    N_("Use"): (
        Question.FUNNEL,
        Question.COVERAGE,
        Question.UNCOVERED_QUERIES,
        Question.ERROR_CATEGORIES,
        Question.CONFLICTS,
        Question.AGENT_RUNS,
    ),
    N_("Costs"): (
        Question.COSTS,
        Question.TRACE_COSTS,
        Question.LESSON_COSTS,
        Question.BULLET_COSTS,
        Question.UNIT_COSTS,
    ),
}
"""The questions in the order of the list, by heading."""
Name = Annotated[str, Query(max_length=128)]


@router.get("")
async def show_questions(visit: CurrentVisit, caller: Reader) -> Response:
    groups = [
        (heading, [(question, question_title(question)) for question in questions])
        for heading, questions in GROUPS.items()
    ]
    return render_page(visit, "analytics/list.html", groups=groups)


@router.get("/{question}")
async def show_answer(
    question: Question,
    visit: CurrentVisit,
    session: Session,
    caller: Reader,
    since: Name = "",
    until: Name = "",
    playbook: Name = "",
    section: Name = "",
    key: Name = "",
    csv: bool = False,
) -> Response:
    """`since` and `until` are days, and both are included."""
    last = _parse_day(until, "until") or datetime.now(UTC).date()
    first = _parse_day(since, "since") or last - DEFAULT_PERIOD + timedelta(days=1)
    names = question_filters(question)
    filters = {"playbook": playbook, "section": section, "key": key}
    shown: dict[str, Any] = {
        "question": question,
        "title": question_title(question),
        "has_period": has_period(question),
        "filters": {name: filters[name] for name in names},
        "first": first,
        "last": last,
    }
    if not (visit.later or csv):
        return render_page(visit, "analytics/answer.html", **shown)
    answer = await get_analytics(
        question,
        session,
        caller,
        visit.project,
        since=_midnight(first),
        until=_midnight(last) + timedelta(days=1),
        **{name: value or None for name, value in filters.items() if name in names},
        limit=MAX_ROWS if csv else FORMS[question].limit,
        format="csv" if csv else "json",
        sql=not csv,
    )
    if not isinstance(answer, AnalyticsAnswer):
        return answer
    return render_page(
        visit,
        "analytics/answer.html",
        **shown,
        answer=answer,
        chart=draw_answer(question, answer.title, answer.rows, visit.translation),
        rows=[_link_values(visit, row) for row in answer.rows[:MAX_SHOWN_ROWS]],
        columns=_columns(answer.columns, answer.rows),
    )


def _parse_day(text: str, field: str) -> date | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"`{field}` must be a day, such as 2026-11-01.", field=field) from None
    if not date(2000, 1, 1) <= day <= date(9998, 12, 31):
        raise InvalidRequest(f"`{field}` must be in the years 2000 to 9998.", field=field)
    return day


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _link_values(visit: Visit, row: dict[str, Any]) -> list[Any]:
    """The values of a row. Those that name a bullet, a playbook, a run or a trace are links."""
    playbook = str(row.get("playbook") or "")

    def link(name: str, value: Any) -> Any:
        if name in PAGES_OF_COLUMNS:
            address = visit.link(PAGES_OF_COLUMNS[name], str(value))
        elif name in BULLET_COLUMNS and playbook:
            address = visit.link("playbooks", playbook, "bullets", str(value))
        else:
            is_long = isinstance(value, str) and len(value) > MAX_TEXT_LENGTH
            return f"{value[:MAX_TEXT_LENGTH]}…" if is_long else value
        shown = short_id(value) if isinstance(value, UUID) else value
        return Markup('<a href="{}">{}</a>').format(address, shown)

    return [value if value is None else link(name, value) for name, value in row.items()]


def _columns(names: list[str], rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The heading and the style of each column: numbers, long texts, or short values."""

    def style(name: str) -> str:
        values = [row[name] for row in rows[:MAX_SHOWN_ROWS] if row[name] is not None]
        if values and all(isinstance(value, int | float) for value in values):
            return "number"
        is_long = any(isinstance(v, str) and len(v) > MAX_SHORT_LENGTH for v in values)
        return "wide" if is_long else "short"

    return [(name, style(name)) for name in names]
