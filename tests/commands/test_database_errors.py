"""A database that cannot be used is said in one line, whatever the command."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator

import pytest

from tests.conftest import Database
from tests.support.paths import ROOT
from tests.support.processes import free_port
from tests.support.server_command import run_command

COMMANDS = (
    ("tenant", "create", "acme"),
    ("key", "create", "--tenant", "acme"),
    ("reembed", "--tenant", "acme", "--provider", "static"),
)

NO_TABLES = "This database has no tables yet. Run `hansei migrate`."


def connection(url: str) -> dict[str, str]:
    return {"DATABASE_URL": url, "HANSEI_OWNER_URL": url, "HANSEI_WORKER_URL": url}


async def run(arguments: tuple[str, ...], url: str) -> tuple[int, str]:
    """The command as a process of its own."""
    env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
    env |= connection(url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hansei", *arguments),
        cwd=ROOT,
        env=env,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, err.decode().strip()


def with_wrong_password(url: str) -> str:
    return re.sub(r":[^:@/]+@", ":wrong@", url)


@pytest.fixture
async def bare(database: Database) -> AsyncIterator[str]:
    """A database with the extension and nothing else."""
    name = f"{database.name}_bare"
    await database.server.create_database(name)
    await database.server.run("create extension vector", name)
    yield database.server.url("hansei_owner", name)
    await database.server.drop_database(name)


@pytest.fixture
async def empty(database: Database) -> AsyncIterator[str]:
    """A database without the extension."""
    name = f"{database.name}_empty"
    await database.server.create_database(name)
    yield database.server.url("hansei_owner", name)
    await database.server.drop_database(name)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
async def test_database_error_is_one_line(
    arguments: tuple[str, ...], database: Database, bare: str, empty: str
) -> None:
    server = database.server
    wrong = {
        bare: (2, NO_TABLES),
        empty: (2, "The pgvector extension is missing in this database."),
        server.url("hansei_owner", "nothing_here"): (1, '"nothing_here" does not exist'),
        with_wrong_password(bare): (2, "The database refuses the login: password authentication"),
        "postgresql://x:x@127.0.0.1:1/x": (1, "The database is unavailable: "),
        "postgresql://x:x@nowhere.invalid/x": (1, "The database is unavailable: "),
    }
    for url, (expected, said) in wrong.items():
        status, _, err = await run_command(arguments, connection(url))
        assert status == expected, err
        assert said in err
        assert len(err.splitlines()) == 1, err


async def test_migrate_names_the_missing_extension(empty: str) -> None:
    status, _, err = await run_command(("migrate",), connection(empty))
    assert status == 2
    assert "The pgvector extension is missing in this database." in err
    assert len(err.splitlines()) == 1, err


async def test_process_prints_one_line(bare: str) -> None:
    status, err = await run(("tenant", "create", "acme"), bare)
    assert (status, len(err.splitlines())) == (2, 1), err


@pytest.mark.parametrize(
    "arguments",
    [("worker",), ("serve", "--processes", "1", "--port", str(free_port()))],
    ids=["worker", "serve"],
)
async def test_wrong_password_stops_process(arguments: tuple[str, ...], bare: str) -> None:
    status, err = await run(arguments, with_wrong_password(bare))
    last = err.splitlines()[-1]
    assert (status, "refuses the login" in last) == (2, True), err
    assert "Check the user and the password of its URL." in last


@pytest.mark.parametrize(
    "arguments",
    [
        ("worker",),
        ("serve", "--processes", "1", "--port", str(free_port())),
        ("serve", "--processes", "2", "--port", str(free_port())),
    ],
    ids=["worker", "serve", "serve-2"],
)
async def test_process_before_migration_fails_in_one_line(
    arguments: tuple[str, ...], bare: str
) -> None:
    status, err = await run(arguments, bare)
    assert status == 2, err
    assert set(err.splitlines()) == {f"hansei: {NO_TABLES}"}
