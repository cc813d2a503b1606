"""No database connection is free: requests are refused in time, and what was accepted is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg
import httpx2
import pytest

from tests.support.fault_workload import Census, Sender, assert_same_census
from tests.support.installation import PATIENCE, Installation, until

SMALL_POOL = {"HANSEI_POOL_SIZE": "2", "HANSEI_DATABASE_TIMEOUT": "1"}
AT_ONCE = 8


@contextmanager
def locked_table(installation: Installation, table: str) -> Iterator[None]:
    """Nobody else can use the table."""
    begun, end = threading.Event(), threading.Event()

    async def hold() -> None:
        connection = await asyncpg.connect(installation.pg.url("postgres"))
        try:
            async with connection.transaction():
                await connection.execute(f"lock table {table} in access exclusive mode")
                begun.set()
                await asyncio.to_thread(end.wait, PATIENCE)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(lambda: asyncio.run(hold()))
        assert begun.wait(PATIENCE)
        try:
            yield
        finally:
            end.set()
            holding.result(PATIENCE)


def test_exhausted_pool_is_answered_in_time(installation: Installation) -> None:
    """The table stays locked until all are answered."""
    tenant = installation.tenant()
    headers = {"Authorization": f"Bearer {tenant.key}"}
    installation.run_again(SMALL_POOL)
    try:
        url = f"{installation.url}/api/v1"

        def ask(_: int) -> httpx2.Response:
            return httpx2.get(f"{url}/traces", headers=headers, timeout=30)

        assert ask(0).status_code == 200
        with locked_table(installation, "traces"), ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(ask, range(AT_ONCE)))
            assert {answer.status_code for answer in answers} == {503}
            assert all(answer.headers["Retry-After"] for answer in answers)
            # The database can be reached, and tables that nobody holds can be read.
            until(lambda: installation.ready().status_code == 200, "readiness")
            assert httpx2.get(f"{url}/playbooks", headers=headers).status_code == 200
        until(lambda: ask(0).status_code == 200, "its return")
    finally:
        installation.run_again({})


@contextmanager
def all_connections_taken(installation: Installation) -> Iterator[int]:
    """Take every connection that the server gives to the role of the API."""
    opened, end = threading.Event(), threading.Event()
    count = 0

    async def take() -> None:
        nonlocal count
        taken: list[asyncpg.Connection] = []
        try:
            while True:
                taken.append(await asyncpg.connect(installation.pg.url("hansei_app")))
        except asyncpg.TooManyConnectionsError:
            count = len(taken)
            opened.set()
            await asyncio.to_thread(end.wait, PATIENCE)
        finally:
            for connection in taken:
                await connection.close()

    with ThreadPoolExecutor(1) as pool:
        taking = pool.submit(lambda: asyncio.run(take()))
        assert opened.wait(PATIENCE)
        try:
            yield count
        finally:
            end.set()
            taking.result(PATIENCE)


@pytest.mark.thorough
def test_server_without_free_connections_loses_nothing(
    installation: Installation, expected_census: Census, sender: Sender
) -> None:
    for name in ("api", "worker"):
        installation.kill(name)
    with all_connections_taken(installation) as count:
        assert count > 0
        for name in ("api", "worker"):
            installation.run(name)
        # The process may end: its manager starts it again.
        until(
            lambda: installation.has_ended("api") or installation.ready().status_code == 503,
            "the news of it",
        )
    for name in ("api", "worker"):
        if installation.has_ended(name):
            installation.kill(name)
            installation.run(name)
    installation.await_ready()
    with sender.at_work():
        installation.await_step(sender.tenant, "evaluate")
        with all_connections_taken(installation):
            installation.await_step(sender.tenant, "reflect")
    assert_same_census(installation, sender, expected_census)
