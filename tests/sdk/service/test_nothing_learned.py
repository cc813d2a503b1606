"""The command line says why nothing was learned, and what a waiting bullet needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hansei import Hansei
from hansei.cli.main import app
from hansei.nothing_learned import CONFIRMATION_RULE, NO_LESSON_BY_RULES, WhyNothing
from memory_api.runtime import Runtime
from tests.conftest import TestTenant

Command = Callable[..., Awaitable[Result]]
TEXT_ERROR = [
    {"event_type": "user_message", "content": "Refund order 7."},
    {"event_type": "tool_call", "tool_name": "refund", "content": "refund(7)"},
    {"event_type": "tool_response", "tool_name": "refund", "content": "Error: not found"},
]


@pytest.fixture
def client(live: str, tenant: TestTenant) -> Iterator[Hansei]:
    with Hansei(live, tenant.keys["admin"]) as client:
        yield client


@pytest.fixture
def command(
    live: str,
    tenant: TestTenant,
    drain: Callable[..., Awaitable[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def run(*arguments: str) -> Result:
        done = asyncio.create_task(
            asyncio.to_thread(CliRunner().invoke, app, list(arguments), input=None)
        )
        while not done.done():
            await drain(tenant.id)
            await asyncio.sleep(0.05)
        return await done

    return run


async def test_why_nothing_was_learned(command: Command, client: Hansei) -> None:
    Path("runs.jsonl").write_text(json.dumps({"events": TEXT_ERROR, "outcome": "failure"}))
    learned = await command("reflect", "runs.jsonl", "--playbook", "desk")
    assert f"1 trace: {NO_LESSON_BY_RULES}" in learned.stdout, learned.output
    [trace] = client.traces.list(playbook="desk")
    runs = client.runs.list(trace_id=trace.id).items
    [reflection] = [run for run in runs if run.kind == "reflect"]
    assert NO_LESSON_BY_RULES in (await command("run", "show", reflection.id)).stdout
    assert f"  {NO_LESSON_BY_RULES}\n" in (await command("trace", "show", trace.id)).stdout
    for arguments in (("show", "desk"), ("lessons", "desk")):
        shown = await command("playbook", *arguments)
        assert f"Newest trace {trace.id}: {NO_LESSON_BY_RULES}" in shown.stderr, shown.output
        assert "`hansei trace list --playbook desk`" in shown.stderr


async def test_trace_without_outcome_and_routine_success(
    command: Command, client: Hansei, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.settings, "reflective_memory_mode", "lite")
    waiting = client.traces.create(events=TEXT_ERROR)
    shown = await command("trace", "show", waiting.trace_id)
    assert f"learned: {WhyNothing.NO_OUTCOME}" in shown.stdout
    routine = client.traces.create(events=[{**TEXT_ERROR[0], "content": "Hi"}], outcome="success")
    await command("run", "list")
    shown = await command("trace", "show", routine.trace_id)
    assert "learned: Not reflected on: Success without a failed attempt" in shown.stdout
    assert routine.run_id
    assert "Not reflected on:" in (await command("run", "show", routine.run_id)).stdout


async def test_waiting_bullet_names_its_rule_and_the_command(
    command: Command, client: Hansei
) -> None:
    def corrected(number: int) -> dict[str, Any]:
        def call(amount: float, **response: Any) -> list[dict[str, Any]]:
            arguments = {"order": f"A{number}", "amount": amount}
            sent = {"event_type": "tool_call", "tool_name": "refund"}
            sent["content"] = json.dumps(arguments)
            return [sent, {"event_type": "tool_response", "tool_name": "refund", **response}]

        error = {"message": "amount must be an integer number of cents"}
        events = [*call(number + 0.5, error=error), *call(number * 100 + 50, content="ok")]
        return {"events": events, "outcome": "success"}

    Path("runs.jsonl").write_text("".join(json.dumps(corrected(n)) + "\n" for n in (7, 8, 9)))
    learned = await command("reflect", "runs.jsonl", "--playbook", "desk")
    assert learned.exit_code == 0, learned.output
    [bullet] = client.playbooks.get("desk").bullets
    assert bullet.awaiting_confirmation
    shown = await command("playbook", "show", "desk")
    for printed in (learned.stderr, shown.stderr):
        assert CONFIRMATION_RULE in printed, printed
        assert f"`hansei playbook confirm desk {bullet.id}`" in printed
    lessons = await command("playbook", "lessons", "desk")
    assert f"`hansei playbook confirm desk {bullet.id}`" in lessons.stderr, lessons.output
    [trace, *_] = client.traces.list(playbook="desk")
    shown = await command("trace", "show", trace.id)
    assert "learned: Outcome: success." in shown.stdout
    assert "→ When `refund` fails" in shown.stdout
    assert NO_LESSON_BY_RULES not in shown.stdout
