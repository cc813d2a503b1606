"""`hansei reembed` as a process: killed and run again, and what it says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from rich.text import Text

from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.paths import ROOT
from tests.support.reembedding import insight_drafts, model_states, store_drafts, vector_counts
from tests.support.server_command import run_command
from tests.support.stub_provider import StubProvider

OLD, NEW = "static-minilm-256/1", "openai/embed-b@64"
PATIENCE = 120.0

PROGRAM = """
from datetime import timedelta
from memory_api.maintenance import reembedding
defaults = reembedding.ReembedStep.__init__.__kwdefaults__
assert "grace" in defaults
defaults["grace"] = timedelta(0)
import typer
from memory_api.__main__ import register
application = typer.Typer()
register(application)
application()
"""
"""The command line, in which every process notices a move at once."""

Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture
def environment(database: Database) -> dict[str, str]:
    return {
        "DATABASE_URL": database.url("hansei_app"),
        "HANSEI_WORKER_URL": database.url("hansei_worker"),
        "HANSEI_LEASE_SECONDS": "1.5",
    }


@pytest.fixture
def command(environment: dict[str, str], stub: StubProvider) -> Iterator[Command]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "reembed", *arguments],
            cwd=ROOT,
            env=env | environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


async def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    return process.returncode, out, err


async def test_killed_command_continues_when_run_again(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider, command: Command
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(700))
    to = ["--provider", "openai", "--model", "embed-b", "--dimensions", "64", "--json"]
    to += ["--base-url", stub.openai_url, "--tenant", tenant.slug]
    stub.delay = 0.2
    first = command(*to)
    deadline = time.monotonic() + PATIENCE
    while (await vector_counts(runtime, tenant.id)).get(NEW, 0) < 200:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    first.kill()
    await ended(first)
    done = (await vector_counts(runtime, tenant.id))[NEW]
    assert 200 <= done < 700
    asked = sum(len(call.body["input"]) for call in stub.calls)
    status, out, err = await ended(command(*to))
    assert status == 0, err
    (told,) = json.loads(out)
    assert told | {"run_id": ""} == {
        "tenant_id": str(tenant.id),
        "run_id": "",
        "state": "done",
        "from": OLD,
        "to": NEW,
        "done": 700,
        "total": 700,
    }
    again = sum(len(call.body["input"]) for call in stub.calls) - asked
    assert again <= 700 - done + 1, "what was done is not done again"
    assert (await vector_counts(runtime, tenant.id))[NEW] == 700
    status, out, _ = await ended(command(*to))
    assert (status, json.loads(out)[0]["state"]) == (0, "unchanged")
    assert await model_states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}


async def test_terminal_shows_tenant_name_and_progress(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider, command: Command
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    to = ["--provider", "openai", "--model", "embed-b", "--dimensions", "64"]
    to += ["--base-url", stub.openai_url]
    process = command(*to, "--tenant", tenant.slug, FORCE_COLOR="1", COLUMNS="80")
    status, out, err = await ended(process)
    assert status == 0, err
    assert out.startswith(f"{tenant.slug}: moved 3 memories to openai/embed-b")
    shown = Text.from_ansi(err).plain
    assert tenant.slug in shown
    assert "3/3" in shown


async def test_refusal_is_one_line(environment: dict[str, str], tenant: TestTenant) -> None:
    wrong = [
        (["--provider", "openai", "--tenant", tenant.slug], "OPENAI_API_KEY", 2),
        (["--provider", "nobody", "--tenant", tenant.slug], "static, openai, fastembed", 2),
        (
            ["--provider", "static", "--tenant", "nobody-here"],
            "not found. Run `hansei tenant list`",
            1,
        ),
        (["--provider", "static"], "Pass --tenant NAME or --all.", 2),
        (["--tenant", tenant.slug], "--provider", 2),
    ]
    for arguments, said, expected in wrong:
        status, _, err = await run_command(("reembed", *arguments), environment)
        assert status == expected, (arguments, err)
        assert said in err
        assert len(err.strip().splitlines()) == 1, err


async def test_cancel_without_reembedding_reports_idle(
    environment: dict[str, str], tenant: TestTenant
) -> None:
    cancel = ("reembed", "--cancel", "--tenant", tenant.slug, "--json")
    status, out, err = await run_command(cancel, environment)
    assert status == 0, err
    assert json.loads(out) == [{"tenant_id": str(tenant.id), "state": "idle", "to": None}]
