"""`hansei trace` takes each ID of a trace that it prints."""

from __future__ import annotations

import asyncio
import json
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner, Result

from hansei import Hansei
from hansei.cli.main import app
from tests.conftest import TestTenant


async def test_trace_is_found_by_its_external_id(
    live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def trace(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, ["trace", *arguments])

    events = [{"event_type": "user_message", "content": "Hello"}]
    with Hansei(live, tenant.keys["admin"]) as client:
        for external_id in ("run/4711", str(uuid4())):
            sent = client.traces.create(events=events, external_id=external_id)
            shown = await trace("show", external_id)
            assert shown.stdout.startswith(f"{sent.trace_id} · "), shown.output
            assert f"external ID: {external_id}\n" in shown.stdout
            recorded = await trace("outcome", external_id, "failure")
            assert recorded.exit_code == 0, recorded.output
            assert client.traces.get(sent.trace_id).outcome == "failure"
        other = client.traces.create(events=events, external_id="run/1", project_id="other")
        missing = await trace("show", "run/1")
        message = "(--project) has the `external_id` 'run/1'"
        assert (missing.exit_code, message in missing.output) == (1, True), missing.output
        shown = await trace("show", "run/1", "--project", "other")
        assert shown.stdout.startswith(f"{other.trace_id} · "), shown.output
        deleted = await trace("delete", "run/4711")
        assert (deleted.exit_code, client.traces.list(external_id="run/4711").items) == (0, [])
        assert "What was learned from it stays: bullets, memories and verdicts." in deleted.stdout
        assert f"`hansei erase trace {UUID(deleted.stdout.split()[-1].strip('`'))}`" in (
            deleted.stdout
        )


async def test_list_says_that_there_is_more_and_that_a_playbook_is_unknown(
    live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def command(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, arguments)

    with Hansei(live, tenant.keys["admin"]) as client:
        client.playbooks.update("support", focus="Refunds")
        for number in range(3):
            events = [{"event_type": "user_message", "content": f"Hello {number}"}]
            client.traces.create(events=events, outcome="failure", playbook="later")
            client.memories.create(kind="insight", content=f"Fact {number}")
    for name in ("trace", "run", "memory"):
        listed = await command(name, "list", "--limit", "2")
        assert listed.stderr == "There are more: --limit 20\n", name
        found = json.loads((await command(name, "list", "--limit", "2", "--json")).stdout)
        assert len(found["items"]) == 2
        assert (await command(name, "list", "--limit", "20")).stderr == ""
    unknown = await command("trace", "list", "--playbook", "suport")
    assert (unknown.exit_code, "Playbook not found" in unknown.stderr) == (1, True)
    assert "Run `hansei playbook list` to see the playbooks." in unknown.stderr
    named = await command("trace", "list", "--playbook", "support")
    assert (named.exit_code, named.stderr) == (0, "No traces found.\n")
    named = await command("trace", "list", "--playbook", "later")
    assert named.stdout.count(" · later\n") == 3
