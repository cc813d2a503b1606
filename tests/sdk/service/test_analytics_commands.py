"""`hansei analytics` against the service: table, CSV, JSON and SQL."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner, Result

from bench.analytics_rows import SAMPLE, fill
from hansei.cli.main import app
from tests.conftest import Database, TestTenant

Command = Callable[..., Awaitable[Result]]
JULY = ("--since", "2025-07-01", "--until", "2025-08-01", "--playbook", "support")


@pytest.fixture
async def command(
    live: str, tenant: TestTenant, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Command:
    await fill(database.url("postgres"), tenant.id, SAMPLE)
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["read"])

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, ["analytics", *arguments])

    return run


async def test_answers(command: Command) -> None:
    listed = (await command()).stdout
    assert "verdict_drift" in listed
    table = await command("movers", *JULY, "--limit", "3")
    assert table.exit_code == 0, table.output
    lines = table.stdout.splitlines()
    assert lines[0].startswith("Which bullets gained the most")
    assert lines[2].startswith("support   mis-00005")
    assert lines[0].endswith("(2025-07-01 to 2025-08-01)")
    assert "There are more rows." in table.stderr
    for question in ("unit_costs", "contradictions"):
        title = (await command(question, *JULY)).stdout.splitlines()[0]
        assert title.endswith("?"), "all time: the period does not apply"


async def test_formats(command: Command) -> None:
    rows = list(csv.DictReader(io.StringIO((await command("movers", *JULY, "--csv")).stdout)))
    answer = json.loads((await command("movers", *JULY, "--json")).stdout)
    assert [row["key"] for row in rows] == [row["key"] for row in answer["rows"]]
    shown = (await command("movers", *JULY, "--sql")).stdout
    assert "from analytics.movers(timestamptz '2025-07-01T00:00:00+00:00'" in shown
    assert shown.endswith("limit 100;\n")
    assert (await command("movers", "--csv", "--sql")).exit_code == 2
    empty = await command("movers")
    assert (empty.exit_code, "No rows found." in empty.output) == (0, True)
    near = await command("verdict_drit")
    assert (near.exit_code, near.stderr.endswith(" Did you mean 'verdict_drift'?\n")) == (1, True)
    relative = await command("movers", "--since", "yesterday")
    assert "Must be an ISO 8601 time, such as 2026-07-31 or" in relative.stderr
    unknown = await command("movers", "--playbook", "none")
    assert (
        unknown.exit_code,
        "Playbook 'none' not found: analytics/movers." in unknown.output,
    ) == (
        1,
        True,
    )
