"""A database that cannot be used is said in one line, whatever the command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from tests.conftest import ROOT, Database

COMMANDS = (
    ("tenant", "create", "acme"),
    ("key", "create", "--tenant", "acme"),
    ("reembed", "--tenant", "acme", "--provider", "static"),
)


async def run(arguments: tuple[str, ...], url: str) -> tuple[int, str]:
    env = {name: value for name, value in os.environ.items() if "HANSEI" not in name}
    env |= {"DATABASE_URL": url, "HANSEI_OWNER_URL": url, "HANSEI_WORKER_URL": url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hansei", *arguments),
        cwd=ROOT,
        env=env,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, err.decode().strip()


@pytest.fixture
async def bare(database: Database) -> AsyncIterator[str]:
    """A database with the extension and nothing else."""
    name = f"{database.name}_bare"
    await database.server.run(f"create database {name} owner hansei_owner")
    await database.server.run("create extension vector", name)
    yield database.server.url("hansei_owner", name)
    await database.server.run(f"drop database {name} with (force)")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
async def test_one_line(arguments: tuple[str, ...], database: Database, bare: str) -> None:
    server = database.server
    wrong = {
        bare: (2, "this database has no tables yet: `hansei migrate` makes them"),
        server.url("hansei_owner", "postgres"): (2, "this database has no pgvector"),
        server.url("hansei_owner", "nothing_here"): (1, '"nothing_here" does not exist'),
        "postgresql://x:x@127.0.0.1:1/x": (1, "the database cannot be used: "),
        "postgresql://x:x@nowhere.invalid/x": (1, "the database cannot be used: "),
    }
    for url, (expected, said) in wrong.items():
        status, err = await run(arguments, url)
        assert status == expected, err
        assert said in err
        assert len(err.splitlines()) == 1, err


async def test_a_worker_before_the_migration(bare: str) -> None:
    status, err = await run(("worker",), bare)
    assert (status, "has no tables yet" in err.splitlines()[-1]) == (2, True), err
