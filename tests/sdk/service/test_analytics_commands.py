"""`hansei analytics` against the service: table, sparkline, CSV, JSON and SQL."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner, Result

from bench.analytics_rows import SAMPLE, fill
from hansei.cli.analytics import sparklines
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
    assert "There are more rows." in table.stderr
    sizes = (await command("playbook_sizes", *JULY)).stdout.splitlines()
    assert sizes[-1].startswith("support: active_count  ")
    assert "█" in sizes[-1]
    funnel = (await command("funnel", *JULY, "--limit", "1000")).stdout.splitlines()
    assert sum(line.startswith("support: ") for line in funnel) == 8


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
    unknown = await command("movers", "--playbook", "none")
    assert (
        unknown.exit_code,
        "Playbook 'none' not found: analytics/movers." in unknown.output,
    ) == (
        1,
        True,
    )


def test_sparkline_starts_at_zero() -> None:
    rows = [
        {"playbook": "p", "day": f"2025-07-0{day}", "cost_usd": usd, "model": model}
        for day, usd, model in ((1, 2.0, "a"), (1, 2.0, "b"), (2, 0.0, "a"), (3, 8.0, "a"))
    ]
    assert sparklines("costs", rows) == {"p: cost_usd": "▅▁█  highest 8"}
    assert sparklines("movers", rows) == {}
    assert sparklines("costs", [row | {"cost_usd": None} for row in rows[:1]]) == {
        "p: cost_usd": "▁  highest 0"
    }
