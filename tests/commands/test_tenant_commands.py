"""`hansei tenant suspend`, `resume` and `export`, and `hansei maintain`."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from fastapi import FastAPI
from httpx2 import AsyncClient
from typer.testing import CliRunner, Result

from hansei.cli import terminal
from memory_api.__main__ import register
from memory_api.auth.queries import set_tenant_status
from memory_api.commands import maintain
from memory_api.core.db import Base, Sessions, open_engine
from memory_api.tenants.export import LEFT_OUT
from tests.conftest import Database, TestTenant
from tests.support.api_calls import new_memory, new_trace


async def run(*arguments: str) -> Result:
    app = typer.Typer()
    register(app)
    return await asyncio.to_thread(CliRunner().invoke, app, [*arguments])


@pytest.fixture(autouse=True)
def environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, role in (
        ("OWNER_URL", "hansei_owner"),
        ("WORKER_URL", "hansei_worker"),
        ("DATABASE_URL", "hansei_app"),
    ):
        monkeypatch.setenv(f"HANSEI_{name}", database.url(role))
    # The logs of this process would go to the output of the command, which is closed afterwards.
    monkeypatch.setattr(maintain, "configure_logging", lambda *_: None)


async def test_suspended_tenant_is_refused_until_it_is_resumed(
    app: FastAPI, api: AsyncClient, tenant: TestTenant
) -> None:
    suspended = await run("tenant", "suspend", tenant.slug)
    assert suspended.exit_code == 0, suspended.output
    app.state.api.key_cache._entries.clear()  # five seconds later
    assert (await api.get("/api/v1/memories")).status_code in (401, 403)
    waiting = await run("maintain", "pruning", "--tenant", tenant.slug)
    assert (waiting.exit_code, "is not active" in waiting.output) == (1, True), waiting.output
    resumed = await run("tenant", "resume", tenant.slug)
    assert resumed.exit_code == 0, resumed.output
    app.state.api.key_cache._entries.clear()
    assert (await api.get("/api/v1/memories")).status_code == 200
    missing = await run("tenant", "suspend", "no-such-tenant")
    assert (missing.exit_code, "not found" in missing.output) == (1, True)


async def test_name_of_an_erased_tenant_cannot_be_used_again(
    tenant: TestTenant, database: Database
) -> None:
    again = await run("tenant", "create", tenant.slug)
    assert (again.exit_code, "already exists" in again.output) == (0, True), again.output
    owner = Sessions(open_engine(database.url("hansei_owner"), pool_size=1))
    async with owner.for_tenant(tenant.id) as session:
        await set_tenant_status(session, "erased")
    await owner.close()
    refused = await run("tenant", "create", tenant.slug)
    assert (refused.exit_code, "was erased" in refused.output) == (1, True), refused.output


async def test_export_contains_the_rows_of_one_tenant(
    api: AsyncClient, tenant: TestTenant, tmp_path: Path
) -> None:
    await new_memory(api, "A fact worth a backup")
    trace_id = await new_trace(api)
    file = tmp_path / "export.ndjson"
    # A process of its own: this one has imported all tables, the command may not.
    command = [sys.executable, "-m", "memory_api", "tenant", "export", tenant.slug]
    exported = await asyncio.to_thread(
        subprocess.run, [*command, "--output", str(file)], capture_output=True, text=True
    )
    assert exported.returncode == 0, exported.stderr
    *rows, last = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert sum(last["counts"].values()) == len(rows)
    assert {"tenants", "api_keys", "memories", "traces"} <= {row["table"] for row in rows}
    owned = {t.name for t in Base.metadata.tables.values() if "tenant_id" in t.columns}
    assert last["counts"].keys() == {"tenants", *owned} - LEFT_OUT
    assert {row["row"]["tenant_id"] for row in rows if "tenant_id" in row["row"]} == {
        str(tenant.id)
    }
    assert trace_id in {row["row"]["id"] for row in rows if row["table"] == "traces"}
    assert tenant.keys["admin"].split("_", 2)[2] not in file.read_text(encoding="utf-8")


async def test_export_is_private_and_follows_no_link(tenant: TestTenant, tmp_path: Path) -> None:
    other, output = tmp_path / "of-others", tmp_path / "export.ndjson"
    other.write_text("theirs")
    output.symlink_to(other)
    exported = await run("tenant", "export", tenant.slug, "--output", str(output))
    assert exported.exit_code == 0, exported.output
    assert other.read_text() == "theirs"
    assert not output.is_symlink()
    assert output.stat().st_mode & 0o777 == 0o600
    for place, reason in ((tmp_path, "not a file"), (tmp_path / "no" / "x", "cannot be written")):
        refused = await run("tenant", "export", tenant.slug, "--output", str(place))
        assert (refused.exit_code, reason in refused.output) == (1, True), refused.output
    assert {path.name for path in tmp_path.iterdir()} == {other.name, output.name}


async def test_name_of_a_key_does_not_control_the_terminal(
    api: AsyncClient, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator of a tenant chooses it, and the operator of the service reads it."""
    name = "\x1b]52;c;eA==\x07\x9b2J\nforged  admin"
    body = {"name": name, "scopes": ["read"]}
    (await api.post("/api/v1/keys", json=body)).raise_for_status()
    monkeypatch.setattr(terminal.stdout, "_force_terminal", True)
    for options in ([], ["--json"]):
        listed = await run("key", "list", "--tenant", tenant.slug, *options)
        assert listed.exit_code == 0, listed.output
        assert "52;c;eA==" in listed.output
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", listed.output)
        assert "\nforged" not in listed.output


async def test_maintenance_task_runs_for_one_tenant(tenant: TestTenant) -> None:
    done = await run("maintain", "pruning", "--tenant", tenant.slug, "--json")
    assert done.exit_code == 0, done.output
    (item,) = json.loads(done.stdout)
    assert (item["tenant"], "run_id" in item) == (tenant.slug, True)
    for arguments, message in (
        (("nonsense", "--tenant", tenant.slug), "The tasks are:"),
        (("pruning",), "Pass --tenant NAME or --all."),
    ):
        refused = await run("maintain", *arguments)
        assert (refused.exit_code, message in refused.output) == (2, True), refused.output
