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

from apps.memory_api.runtime import Runtime
from tests.conftest import ROOT, Database, TestTenant
from tests.stub_provider import StubProvider
from tests.workers.moving import insights, remember, states, vectors

OLD, NEW = "static-minilm-256/1", "openai/embed-b@64"
PATIENCE = 120.0

PROGRAM = """
from datetime import timedelta
from apps.memory_api.workers import reembed
reembed.run.__kwdefaults__["settle"] = timedelta(0)
import typer
from apps.memory_api.__main__ import register
application = typer.Typer()
register(application)
application()
"""
"""The command line, in which every process knows of a move at once."""

Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def stub() -> Iterator[StubProvider]:
    with StubProvider() as running:
        yield running


@pytest.fixture
def command(database: Database, stub: StubProvider) -> Iterator[Command]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **variables: str) -> subprocess.Popen[str]:
        env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "reembed", *arguments],
            cwd=ROOT,
            env=env
            | {
                "DATABASE_URL": database.url("hansei_app"),
                "HANSEI_WORKER_URL": database.url("hansei_worker"),
                "HANSEI_LEASE_SECONDS": "1.5",
            }
            | variables,
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


async def test_killed_and_run_again_it_goes_on(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider, command: Command
) -> None:
    await remember(runtime, tenant.id, insights(700))
    to = ["--provider", "openai", "--model", "embed-b", "--dimensions", "64", "--json"]
    to += ["--base-url", stub.openai_url, "--tenant", tenant.slug]
    stub.delay = 0.2
    first = command(*to)
    deadline = time.monotonic() + PATIENCE
    while (await vectors(runtime, tenant.id)).get(NEW, 0) < 200:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    first.kill()
    await ended(first)
    done = (await vectors(runtime, tenant.id))[NEW]
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
    assert (await vectors(runtime, tenant.id))[NEW] == 700
    status, out, _ = await ended(command(*to))
    assert (status, json.loads(out)[0]["state"]) == (0, "there")
    assert await states(runtime, tenant.id) == {OLD: "retiring", NEW: "active"}


async def test_a_person_sees_the_tenant_by_name_and_how_far_it_is(
    runtime: Runtime, tenant: TestTenant, stub: StubProvider, command: Command
) -> None:
    await remember(runtime, tenant.id, insights(3))
    to = ["--provider", "openai", "--model", "embed-b", "--dimensions", "64"]
    to += ["--base-url", stub.openai_url]
    process = command(*to, "--tenant", tenant.slug, FORCE_COLOR="1", COLUMNS="80")
    status, out, err = await ended(process)
    assert status == 0, err
    assert out.startswith(f"{tenant.slug}: 3 memories are served by openai/embed-b")
    shown = Text.from_ansi(err).plain
    assert tenant.slug in shown
    assert "3/3" in shown


async def test_what_it_refuses_it_says_in_one_line(command: Command, tenant: TestTenant) -> None:
    wrong = [
        (["--provider", "openai", "--tenant", tenant.slug], "OPENAI_API_KEY", 2),
        (["--provider", "nobody", "--tenant", tenant.slug], "static, openai, fastembed", 2),
        (["--provider", "static", "--tenant", "nobody-here"], "There is no tenant", 1),
        (["--provider", "static"], "Say --tenant NAME, or --all.", 2),
        (["--tenant", tenant.slug], "--provider", 2),
    ]
    answers = await asyncio.gather(*(ended(command(*arguments)) for arguments, *_ in wrong))
    for (status, _out, err), (arguments, said, expected) in zip(answers, wrong, strict=True):
        assert status == expected, (arguments, err)
        assert said in err
        assert len(err.strip().splitlines()) == 1, err


async def test_cancelling_what_does_not_move(command: Command, tenant: TestTenant) -> None:
    status, out, err = await ended(command("--cancel", "--tenant", tenant.slug, "--json"))
    assert status == 0, err
    assert json.loads(out) == [{"tenant_id": str(tenant.id), "state": "idle", "to": None}]
