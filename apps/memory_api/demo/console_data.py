"""What the pages Evaluations and SQL of the demo show."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.analytics.queries import upsert_saved_statement
from memory_api.auth.identity import Identity
from memory_api.core.log_context import current_actor
from memory_api.core.resources import read_sql
from memory_api.evaluation_reports.router import create_evaluation_report
from memory_api.evaluation_reports.schemas import CreateEvaluationReportRequest

REPORTS = Path(__file__).parent / "evaluations.jsonl"
"""The reports of the measurements from which the desks are taken: e43 and c25 of docs/proof.md, as
`hansei eval report FOLDER --json` prints them for `tests/recordings/eval`. The names of projects
were removed, because this installation has no such projects, and `about` was added.
"""
STATEMENTS = {
    "Harmful bullets": read_sql("demo/statements.sql", "harmful_bullets"),
    "Success by week, with and without advice": read_sql("demo/statements.sql", "success_by_week"),
    "Latest changes": read_sql("demo/statements.sql", "latest_changes"),
    "Cost of learning": read_sql("demo/statements.sql", "cost_of_learning"),
}
"""Saved statements by name. A person runs them with the login of the tenant."""


async def load_console_data(session: AsyncSession, caller: Identity) -> None:
    """Publish the reports and save the statements."""
    for line in REPORTS.read_text(encoding="utf8").splitlines():
        body = CreateEvaluationReportRequest(report=json.loads(line))
        await create_evaluation_report(body, session, caller)
    for name, statement in STATEMENTS.items():
        await upsert_saved_statement(session, name, statement, current_actor())
