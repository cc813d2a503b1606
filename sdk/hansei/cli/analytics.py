"""`hansei analytics`: questions about playbooks as a table with a sparkline, JSON or CSV."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer

from hansei.cli.options import AsJson, Project
from hansei.cli.terminal import (
    open_client,
    print_document,
    print_json,
    print_message,
    print_table,
    print_text,
    truncate_line,
)
from hansei.models import AnalyticsAnswer, Question

BARS = "▁▂▃▄▅▆▇█"
MAX_CELL_LENGTH = 60
SHARES = ("survival",)
"""Columns that are shares, besides those that end with "rate"."""
ENDS = ("difference", "low", "high")
"""A difference of shares, and the ends of the interval of a row's share or difference."""
SPARKLINES = {
    "playbook_sizes": "active_count",
    "churn": "created_count",
    "verdicts": "harmful_count",
    "funnel": "count",
    "coverage": "unmatched_count",
    "costs": "cost_usd",
    "error_categories": "reflection_count",
}
"""Question by day → the column that its sparkline shows."""
GROUPS = {"funnel": "stage", "error_categories": "error_category"}
"""Question → the column whose values get a sparkline each."""


def show_analytics(
    question: Annotated[
        str | None, typer.Argument(help="A question. Without it, all questions are listed.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="ISO 8601 time. Default: 30 days ago.")] = None,
    until: Annotated[str | None, typer.Option(help="ISO 8601 time. Default: now.")] = None,
    playbook: Annotated[str | None, typer.Option(help="Only this playbook.")] = None,
    section: Annotated[str | None, typer.Option(help="Only this section.")] = None,
    key: Annotated[str | None, typer.Option(help="Only this bullet.")] = None,
    project: Project = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Print only the SQL statement.")] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question about how playbooks evolve: what changed, helps, harms and costs."""
    if question is None:
        _list_questions(as_json)
        return
    if as_csv + sql + as_json > 1:
        raise typer.BadParameter("Use only one of --csv, --sql and --json.")
    filters: dict[str, Any] = {
        "since": since,
        "until": until,
        "playbook": playbook,
        "section": section,
        "key": key,
        "project_id": project,
        "limit": limit,
    }
    asked = cast("Question", question)
    with open_client() as client:
        if as_csv:
            print_document(client.analytics.get_csv(asked, **filters))
            return
        answer = client.analytics.get(asked, **filters, sql=sql)
    if as_json:
        print_json(answer)
    elif sql:
        print_document(f"{answer.sql};\n")
    else:
        _print_answer(answer)


def _list_questions(as_json: bool) -> None:
    with open_client() as client:
        questions = list(client.analytics.list_questions())
    if as_json:
        print_json({"items": questions})
        return
    print_table(("question", ""), [(item.name, item.title) for item in questions])


def _print_answer(answer: AnalyticsAnswer) -> None:
    period = f"{answer.since[:10]} to {answer.until[:10]}"
    print_text(f"{answer.title} ({period})", style="bold")
    if not answer.rows:
        print_message("No rows found.")
        return
    columns = [name for name in answer.columns if any(row[name] is not None for row in answer.rows)]
    print_table(columns, [[_cell(name, row) for name in columns] for row in answer.rows])
    for name, line in sparklines(answer.question, answer.rows).items():
        print_text(f"{name}  {line}")
    if answer.truncated:
        print_message("There are more rows. Use --limit, a shorter period or --csv.")


def sparklines(question: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Label → one character per day with rows, in order. Empty for a question without days."""
    column = SPARKLINES.get(question)
    if column is None:
        return {}
    days = sorted({row["day"] for row in rows})
    sums: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(days, 0.0))
    for row in rows:
        label = str(row.get(GROUPS.get(question, ""), "")) or column
        name = f"{row['playbook'] or '-'}: {label}"
        sums[name][row["day"]] += float(row[column] or 0)
    return {name: _draw(list(values.values())) for name, values in sorted(sums.items())}


def _draw(values: Sequence[float]) -> str:
    """The bars start at 0, so that their heights can be compared."""
    highest = max(values, default=0.0)
    bars = [BARS[round(v / highest * (len(BARS) - 1))] if highest else BARS[0] for v in values]
    line = "".join(bars)
    encoding = sys.stdout.encoding or "utf-8"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        return " ".join(f"{value:g}" for value in values)
    return f"{line}  highest {highest:g}"


def _cell(name: str, row: Mapping[str, Any]) -> str:
    """A value. A share has a bar; a difference of shares and its interval are points."""
    value = row[name]
    if isinstance(value, int | float) and (name in SHARES or name.endswith("rate")):
        bar = BARS[min(int(value * len(BARS)), len(BARS) - 1)]
        return f"{bar} {value:.0%}"
    if isinstance(value, int | float) and name.endswith(ENDS):
        is_points = name in ENDS and "difference" in row
        return f"{100 * value:+.0f} points" if is_points else f"{value:.0%}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else truncate_line(str(value), MAX_CELL_LENGTH)
