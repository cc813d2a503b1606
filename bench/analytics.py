"""Questions of analytics about one month of one playbook: `python -m bench analytics [--short]`.

A playbook with a year of history: 10,000 bullets, a million revisions and verdicts, 100,000 traces.
The time of each question as the service asks it, and as a read-only login does.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

import asyncpg
import typer
from sqlalchemy import make_url

from bench.analytics_rows import History, fill
from bench.harness import (
    Call,
    MeasuredServer,
    Report,
    connect,
    describe_machine,
    measured_server,
    spread,
)
from memory_api.analytics.queries import create_login, load_answer
from memory_api.analytics.questions import (
    Question,
    QuestionFilter,
    build_statement,
    render_statement,
)
from memory_api.commands.sql_logins import scram_verifier
from memory_api.core.db import Sessions, open_engine

BEGUN = datetime(2025, 11, 1, tzinfo=UTC)
FULL = History(10_000, 1_000_000, 1_000_000, 100_000, 365, BEGUN)
SHORT = History(1_000, 50_000, 50_000, 5_000, 365, BEGUN)
MONTH = QuestionFilter(
    project="default",
    since=datetime(2026, 5, 1, tzinfo=UTC),
    until=datetime(2026, 6, 1, tzinfo=UTC),
    playbook="support",
)
TIMES = 8
EXAMPLES = {
    "days": "select * from analytics.days where day between '2026-05-01' and '2026-05-31'",
    "playbook_at": "select * from analytics.playbook_at('support', '2026-05-01')",
    "playbook_diff": "select * from analytics.playbook_diff('support', '2026-05-01', '2026-06-01')",
    "effects, 90 days": "select * from analytics.effects('2026-03-03', '2026-06-01')"
    " where playbook = 'support'",
}
"""What no question asks: the other view and functions, and the effects of all stored retrievals,
which the default retention deletes after 90 days.
"""


async def prepare(server: MeasuredServer, history: History) -> UUID:
    """Fills a tenant."""
    tenant = uuid4()
    await fill(server.url("postgres"), tenant, history)
    superuser = await connect(server.url("postgres"))
    await superuser.execute("vacuum analyze")
    await superuser.close()
    return tenant


async def measure(server: MeasuredServer, report: Report, tenant: UUID) -> None:
    """Times each question as the service asks it and as a read-only login does."""
    owner = Sessions(open_engine(server.url("hansei_owner"), pool_size=1))
    password = uuid4().hex
    async with owner.for_tenant(tenant) as session:
        login = await create_login(session, scram_verifier(password))
    await owner.close()
    url = make_url(server.url("hansei_owner")).set(username=login, password=password)
    analyst = await asyncpg.connect(url.render_as_string(hide_password=False))
    sessions = Sessions(open_engine(server.url("hansei_app"), pool_size=1))
    try:
        for question in Question:
            await _measure_question(report, question, sessions, analyst, tenant)
        for name, statement in EXAMPLES.items():
            rows = len(await analyst.fetch(statement))
            spent = await spread(_asking(analyst, statement), TIMES, warm=2)
            report.row("questions", name, rows, "", spent)
    finally:
        await analyst.close()
        await sessions.close()


def _asking(analyst: Any, statement: str) -> Call:
    async def ask(_: int) -> None:
        await analyst.fetch(statement)

    return ask


async def _measure_question(
    report: Report, question: Question, sessions: Sessions, analyst: Any, tenant: UUID
) -> None:
    shown = render_statement(build_statement(question, MONTH), MONTH, tenant)
    counts: list[int] = []

    async def ask(_: int) -> None:
        async with sessions.for_tenant(tenant) as session:
            counts.append(len((await load_answer(session, question, MONTH)).rows))

    service = await spread(ask, TIMES, warm=2)
    login = await spread(_asking(analyst, shown), TIMES, warm=2)
    report.row("questions", question, counts[-1], service, login)


def main(
    short: Annotated[bool, typer.Option(help="A twentieth of the rows; writes no file.")] = False,
) -> None:
    history = SHORT if short else FULL
    with measured_server() as server:
        tenant = asyncio.run(prepare(server, history))
        report = Report(
            "analytics",
            f"{describe_machine()} One playbook with {history.bullets:,} bullets, "
            f"{history.revisions:,} revisions, {history.verdicts:,} verdicts, {history.traces:,} "
            f"traces and {history.traces // 4:,} agent runs in {history.days} days. One month of "
            "it is read. p50 / p95 in ms.",
        )
        report.table("questions", "Questions", "question", "rows", "service", "login")
        asyncio.run(measure(server, report, tenant))
    report.finish(write=not short)


if __name__ == "__main__":
    typer.run(main)
