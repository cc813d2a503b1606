"""The questions of analytics: a chart, a table, the statement, and the rows as CSV."""

from __future__ import annotations

from datetime import date, timedelta
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
from memory_api.analytics.router import get_analytics
from memory_api.analytics.schemas import AnalyticsAnswer
from memory_api.api.deps import Reader, Session
from memory_api.console.analytics.answer_table import build_table
from memory_api.console.analytics.answers import answer_sentence
from memory_api.console.analytics.question_charts import draw_answer, row_limit
from memory_api.console.days import MONTH_DAYS, midnight, today
from memory_api.console.error_texts import FIELD_LABELS
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
        Question.SURVIVAL,
        Question.NEAR_DUPLICATES,
        Question.CONTRADICTIONS,
    ),
    N_("Costs"): (
        Question.COSTS,
        Question.UNIT_COSTS,
    ),
}
"""The questions in the order of the list, by heading."""
ANSWERED = (Question.IMPROVEMENT, Question.SURVIVAL, Question.COVERAGE, Question.UNIT_COSTS)
"""The questions whose answers the list begins with."""
NO_DAY = N_("Must be a day, such as 2026-11-01.")
NO_YEAR = N_("Must be in the years 2000 to 9998.")
Name = Annotated[str, Query(max_length=128)]


@router.get("")
async def show_questions(visit: CurrentVisit, session: Session, caller: Reader) -> Response:
    """All questions, and first the answers of `ANSWERED`."""
    groups = [
        (heading, [(question, question_title(question)) for question in questions])
        for heading, questions in GROUPS.items()
    ]
    answers: list[tuple[Question, str, str]] = []
    for question in ANSWERED if visit.later else ():
        first = _default_first_day(question, today())
        answer = await _answer(question, session, caller, visit.project, first, today())
        sentence = answer_sentence(question, answer.rows, (first, today()), visit.translation)
        answers.append((question, question_title(question), sentence))
    return render_page(visit, "analytics/list.html", groups=groups, answers=answers)


async def _answer(
    question: Question, session: Session, caller: Reader, project: str, first: date, last: date
) -> AnalyticsAnswer:
    answer = await get_analytics(
        question,
        session,
        caller,
        project,
        since=midnight(first),
        until=midnight(last) + timedelta(days=1),
        limit=row_limit(question),
        format="json",
        sql=False,
    )
    assert isinstance(answer, AnalyticsAnswer)
    return answer


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
    problem = ""
    first, last = _default_first_day(question, today()), today()
    try:
        last = _parse_day(until, "until") or last
        first = _parse_day(since, "since") or _default_first_day(question, last)
    except InvalidRequest as error:
        problem = str(error)
    if first > last:
        problem = N_("From must not be later than To.")
    if problem and csv:
        raise InvalidRequest(problem, field="since")
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
        "problem": problem,
        "typed": {"since": since, "until": until},
    }
    if problem:
        return render_page(visit, "analytics/answer.html", 422, **shown)
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
        since=midnight(first),
        until=midnight(last) + timedelta(days=1),
        **{name: value or None for name, value in filters.items() if name in names},
        limit=MAX_ROWS if csv else row_limit(question),
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
        return first_week(midnight(last))
    return last - timedelta(days=MONTH_DAYS - 1)


def _parse_day(text: str, field: str) -> date | None:
    if not text:
        return None
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{FIELD_LABELS[field]}: {NO_DAY}", field=field) from None
    if not date(2000, 1, 1) <= day <= date(9998, 12, 31):
        raise InvalidRequest(f"{FIELD_LABELS[field]}: {NO_YEAR}", field=field)
    return day
