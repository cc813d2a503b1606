"""`hansei analytics`: questions about playbooks as a table, JSON or CSV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

import typer

from hansei.cli.commands import Client, Output, listing
from hansei.cli.options import Project
from hansei.cli.terminal import (
    print_document,
    print_message,
    print_table,
    print_text,
    truncate_line,
)
from hansei.models import AnalyticsAnswer, Question, QuestionInfo

MAX_CELL_LENGTH = 60
SHARES = ("survival",)
"""Columns that are shares, besides those that end with "rate"."""
ENDS = ("difference", "low", "high")
"""A difference of shares, and the ends of the interval of a row's share or difference."""


def show_analytics(
    client: Client,
    question: Annotated[
        str | None, typer.Argument(help="A question. Without it, all questions are listed.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="ISO 8601 time. Default: midnight (UTC) 30 days ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="ISO 8601 time. Default: now.")] = None,
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    section: Annotated[str | None, typer.Option(help="Only this section.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this bullet.")] = None,
    project: Project = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print only the SQL statement.")] = False,
) -> Output:
    """Answer a question about how playbooks evolve: what changed, helps, harms and costs."""
    if as_csv and sql:
        raise typer.BadParameter("Use only one of --csv and --sql.")
    filters: dict[str, Any] = {
        "since": since,
        "until": until,
        "playbook": playbook,
        "section": section,
        "key": key,
        "project_id": project,
        "limit": limit,
    }
    if question is None:
        return listing(client.analytics.list_questions(), "No questions.", table=_print_questions)
    asked = cast("Question", question)
    if as_csv:
        text = client.analytics.get_csv(asked, **filters)
        return Output(text, lambda: print_document(text))
    answer = client.analytics.get(asked, **filters, sql=sql)
    if sql:
        return Output(answer, lambda: print_document(f"{answer.sql};\n"))
    return Output(answer, lambda: _print_answer(answer))


def _print_questions(questions: list[QuestionInfo]) -> None:
    print_table(("question", ""), [(item.name, item.title) for item in questions])


def _print_answer(answer: AnalyticsAnswer) -> None:
    period = (
        f" ({answer.since[:10]} to {answer.until[:10]})" if answer.since and answer.until else ""
    )
    print_text(f"{answer.title}{period}", style="bold")
    if not answer.rows:
        print_message("No rows found.")
        return
    columns = [name for name in answer.columns if any(row[name] is not None for row in answer.rows)]
    print_table(columns, [[_cell(name, row) for name in columns] for row in answer.rows])
    if answer.truncated:
        print_message("There are more rows. Use --limit, a shorter period or --csv.")


def _cell(name: str, row: Mapping[str, Any]) -> str:
    """A value. A share is a percentage; a difference of shares and its interval are points."""
    value = row[name]
    if isinstance(value, int | float) and (name in SHARES or name.endswith("rate")):
        return f"{value:.0%}"
    if isinstance(value, int | float) and name.endswith(ENDS):
        is_points = name in ENDS and "difference" in row
        return f"{100 * value:+.0f} points" if is_points else f"{value:.0%}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else truncate_line(str(value), MAX_CELL_LENGTH)
