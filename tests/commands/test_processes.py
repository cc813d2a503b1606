"""`hansei serve`, `worker` and `up` with a wrong setting end with status 2 and name the setting."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.conftest import Database
from tests.support.paths import ROOT
from tests.support.processes import free_port
from tests.support.server_command import run_command

WRONG = {
    "HANSEI_WORKER_CONCURRENCY": ("many", "HANSEI_WORKER_CONCURRENCY must be a valid integer"),
    "HANSEI_EMBEDDING_PROVIDER": ("openai", "OPENAI_API_KEY"),
    "HANSEI_LLM_PROVIDER": ("openai", "HANSEI_LLM_PROVIDER=openai needs an API key."),
    "HANSEI_DATABASE_URL": ("nonsense", "A database URL in the configuration is not valid."),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", ["serve", "worker"])
async def test_wrong_setting_is_one_line_and_status_2(
    command: str, name: str, database: Database
) -> None:
    port = ("--port", str(free_port())) if command == "serve" else ()
    value, expected = WRONG[name]
    env = {"HANSEI_DATABASE_URL": database.url("hansei_app")} | {name: value}
    status, _, err = await run_command((command, *port), env)
    assert status == 2, err
    assert expected in err
    assert len(err.splitlines()) == 1, err


async def test_wrong_setting_of_a_child_ends_up(database: Database) -> None:
    env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
    env |= {"HANSEI_DATABASE_URL": database.url("hansei_app"), "HANSEI_LLM_PROVIDER": "openai"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hansei", "up", "--port", str(free_port())),
        cwd=ROOT,
        env=env | {"OPENAI_API_KEY": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    lines = err.decode().splitlines()
    assert "HANSEI_LLM_PROVIDER=openai needs an API key." in lines[0]
    assert len(lines) == 1, "checked before anything starts"
