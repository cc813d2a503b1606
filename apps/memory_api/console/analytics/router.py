"""The questions of analytics: a chart, a table, the statement, and the rows as CSV."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from memory_api.analytics.improvement import first_week
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
from memory_api.console.analytics.answer_table import build_table
from memory_api.console.analytics.answers import answer_sentence
from memory_api.console.analytics.question_charts import FORMS, draw_answer
from memory_api.console.pages import ConsoleRoute, CurrentVisit
from memory_api.console.rendering import render_page
from memory_api.console.translations import N_
from memory_api.core.errors import InvalidRequest
from memory_api.playbooks.queries import list_playbooks

router = APIRouter(prefix="/console/analytics", route_class=ConsoleRoute, include_in_schema=False)

MAX_PLAYBOOKS = 500
"""Playbooks in the list of the form."""
GROUPS = {
    N_("Do agents get better?"): (
        Question.IMPROVEMENT,
        Question.EFFECTS,
        Question.VERDICT_DRIFT,
        Question.MOVERS,
        Question.VERDICTS,
    ),
    N_("What is missing, what goes wrong"): (
        Question.COVERAGE,
        Question.UNCOVERED_QUERIES,
        Question.ERROR_CATEGORIES,
        Question.CONFLICTS,
        Question.AGENT_RUNS,
    ),
    N_("Bullets"): (
        Question.BULLETS,
        Question.BULLET_VERSIONS,
        Question.FUNNEL,
        Question.PLAYBOOK_SIZES,
        Question.CHURN,
        Question.BULLET_LIFETIMES,
        Question.SURVIVAL,
        Question.NEAR_DUPLICATES,
        Question.CONTRADICTIONS,
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
    page: Annotated[int, Query(ge=1, le=MAX_ROWS)] = 1,
) -> Response:
    """`since` and `until` are days, and both are included."""
    last = _parse_day(until, "until") or datetime.now(UTC).date()
    first = _parse_day(since, "since") or _default_first_day(question, last)
    names = question_filters(question)
    filters = {"playbook": playbook, "section": section, "key": key}
    shown: dict[str, Any] = {
        "question": question,
        "title": question_title(question),
        "has_period": has_period(question),
        "filters": {name: filters[name] for name in names},
        "first": first,
        "last": last,
        "playbooks": [],
        "unknown_playbook": "",
        "problem": "",
    }
    if first > last:
        message = N_("From must not be later than To.")
        if csv:
            raise InvalidRequest(message, field="since")
        return render_page(visit, "analytics/answer.html", 422, **(shown | {"problem": message}))
    if "playbook" in names and not csv:
        rows = await list_playbooks(
            session, visit.project, deleted=False, after=None, limit=MAX_PLAYBOOKS
        )
        shown["playbooks"] = [row.name for row in rows[:MAX_PLAYBOOKS]]
        is_complete = len(rows) <= MAX_PLAYBOOKS
        is_unknown = is_complete and playbook not in ("", *shown["playbooks"])
        if is_unknown and not visit.later:
            shown["unknown_playbook"] = playbook
            return render_page(visit, "analytics/answer.html", **shown)
        if not is_complete and playbook not in ("", *shown["playbooks"]):
            shown["playbooks"].insert(0, playbook)
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
        sentence=answer_sentence(question, answer.rows, (first, last), visit.translation),
        table=build_table(visit, question, answer.columns, answer.rows, page),
        page=page,
        query=shown["filters"] | ({"since": first, "until": last} if has_period(question) else {}),
    )


def _default_first_day(question: Question, last: date) -> date:
    if question is Question.IMPROVEMENT:
        return first_week(_midnight(last))
    return last - DEFAULT_PERIOD + timedelta(days=1)


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
