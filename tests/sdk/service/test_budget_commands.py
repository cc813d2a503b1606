"""`hansei budget` and `hansei usage` against the service itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from typer.testing import CliRunner, Result

from hansei.cli.main import app
from memory_api.budgets.tables import LLMCallRow
from memory_api.core.ids import new_id
from memory_api.runtime import Runtime
from tests.conftest import TestTenant

Command = Callable[..., Awaitable[Result]]


@pytest.fixture
def command(live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments))

    return run


async def test_budget_is_set_shown_changed_and_removed(command: Command) -> None:
    assert "No budget is set." in (await command("budget", "show")).output
    made = await command("budget", "set", "--day", "2.5", "--json")
    assert made.exit_code == 0, made.output
    (day,) = json.loads(made.stdout)["items"]
    assert (day["period"], day["limit_usd"], day["left_usd"]) == ("day", 2.5, 2.5)
    await command("budget", "set", "--month", "40", "--allow-unknown-price")
    both = json.loads((await command("budget", "show", "--json")).stdout)["items"]
    assert [(one["period"], one["limit_usd"], one["allow_unknown_price"]) for one in both] == [
        ("day", 2.5, False),
        ("month", 40.0, True),
    ]
    shown = (await command("budget", "show")).stdout
    assert "$2.50 of $2.50 left until" in shown
    small = (await command("budget", "set", "--day", "0.00005")).stdout
    assert "$0.000050 of $0.000050 left until" in small
    assert json.loads((await command("budget", "set", "--none", "--json")).stdout) == {"items": []}


async def test_usage_is_grouped_as_requested(
    command: Command, runtime: Runtime, tenant: TestTenant
) -> None:
    assert "No model calls found (" in (await command("usage")).output
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for purpose in ("reflect", "reflect", "curate"):
            session.add(
                LLMCallRow(
                    tenant_id=tenant.id,
                    id=new_id(),
                    provider="openai",
                    model="m",
                    purpose=purpose,
                    status="ok",
                    input_tokens=100,
                    cached_tokens=40,
                    output_tokens=10,
                    cost_usd=Decimal("0.5"),
                    latency_ms=1,
                )
            )
    lines = (await command("usage", "--by", "purpose", "--by", "model")).stdout.splitlines()
    today = datetime.now(UTC).date()
    assert lines == [
        f"{today - timedelta(days=30)} to {today}",
        "m · curate · 1 call · 100 tokens in (40 cached) · 10 out · $0.5000",
        "m · reflect · 2 calls · 200 tokens in (80 cached) · 20 out · $1.00",
        "total · 3 calls · 300 tokens in (120 cached) · 30 out · $1.50",
    ]
    wrong = await command("usage", "--by", "color")
    assert (wrong.exit_code, "Must be 'day'" in wrong.output) == (1, True)
