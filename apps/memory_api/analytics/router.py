"""Questions about the evolution of playbooks over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from memory_api.analytics.csv_export import to_csv
from memory_api.analytics.improvement import first_week
from memory_api.analytics.queries import load_answer
from memory_api.analytics.questions import (
    MAX_ROWS,
    Question,
    QuestionFilter,
    has_period,
    question_filters,
    question_title,
)
from memory_api.analytics.schemas import AnalyticsAnswer, QuestionInfo, QuestionPage
from memory_api.api.deps import ProjectQuery, Reader, Session, default_start
from memory_api.api.problems import problems
from memory_api.api.route import ApiRoute
from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import UtcDatetime

router = APIRouter(prefix="/api/v1/analytics", tags=["analytics"], route_class=ApiRoute)


@router.get("", summary="List the questions of analytics")
async def list_questions(_caller: Reader) -> QuestionPage:
    """Lists the questions that `GET /api/v1/analytics/{question}` answers."""
    return QuestionPage(
        items=[
            QuestionInfo(name=q, title=question_title(q), filters=question_filters(q))
            for q in Question
        ]
    )


@router.get(
    "/{question}",
    summary="Answer a question about playbooks",
    responses={
        **problems(404),
        200: {"content": {"text/csv": {"schema": {"type": "string"}}}},
    },
    response_model=AnalyticsAnswer,
)
async def get_analytics(
    question: Question,
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    since: Annotated[
        UtcDatetime | None,
        Query(
            description="Start, included. Default: midnight (UTC) 30 days before `until`; for "
            "`improvement` the Monday of the week 11 weeks before."
        ),
    ] = None,
    until: Annotated[UtcDatetime | None, Query(description="End, excluded. Default: now.")] = None,
    playbook: Annotated[
        str | None, Query(max_length=128, description="Default: all playbooks of the project.")
    ] = None,
    section: Annotated[
        str | None, Query(max_length=128, description="Name of a section, in its spelling.")
    ] = None,
    key: Annotated[str | None, Query(max_length=128, description="Key of one bullet.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="Maximum number of rows.")] = 1000,
    format: Annotated[Literal["json", "csv"], Query(description="`json` or `csv`.")] = "json",
    sql: Annotated[bool, Query(description="Return the statement too. Only for JSON.")] = False,
) -> AnalyticsAnswer | Response:
    """Answers a question from the views of the schema `analytics`.

    A day is a day in UTC, and a question by day covers each day that the period touches. In CSV, a
    text that starts with `=`, `+`, `-` or `@` gets a leading apostrophe, so that a spreadsheet does
    not execute it.
    """
    if sql and format == "csv":
        raise InvalidRequest("`sql` cannot be combined with `format=csv`.", field="sql")
    end = until or datetime.now(UTC)
    is_weekly = question is Question.IMPROVEMENT
    filter = QuestionFilter(
        project=caller.resolve_project(project_id),
        since=since or (default_start(end, first_week) if is_weekly else default_start(end)),
        until=end,
        playbook=playbook,
        section=section,
        key=key,
        limit=limit,
    )
    if filter.since >= filter.until:
        raise InvalidRequest("`since` must be earlier than `until`.", field="since")
    answer = await load_answer(session, question, filter)
    if format == "csv":
        name = f'attachment; filename="{question}.csv"'
        return Response(
            to_csv(answer.columns, answer.rows),
            media_type="text/csv",
            headers={"Content-Disposition": name},
        )
    return AnalyticsAnswer(
        question=question,
        title=question_title(question),
        since=filter.since if has_period(question) else None,
        until=filter.until if has_period(question) else None,
        columns=list(answer.columns),
        rows=[_to_object(answer.columns, row) for row in answer.rows],
        truncated=answer.truncated,
        sql=answer.statement if sql else None,
    )


def _to_object(columns: Any, row: Any) -> dict[str, Any]:
    """Costs are decimal numbers in the database and JSON numbers on the wire."""
    values = (float(value) if isinstance(value, Decimal) else value for value in row)
    return dict(zip(columns, values, strict=True))
