"""Transactions: begun with their tenant in one round trip, ended whole, never left to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from memory_api.api.problems import to_problem
from memory_api.auth.tables import TenantRow
from memory_api.core.db import CommitRefused, Sessions, asyncpg_connection, open_engine
from memory_api.core.db_errors import (
    CITUS_CHANGED,
    DatabaseUnavailable,
    NoFreeConnection,
    is_connection_error,
    to_unavailable,
)
from memory_api.run_queue.upkeep_schedule import UpkeepSchedule
from tests.conftest import Database, TestTenant

IS_IN_TRANSACTION = (
    "select exists (select from pg_stat_activity where pid = $1 and state like 'idle in%')"
)


@pytest.fixture
async def alone(database: Database) -> AsyncIterator[Sessions]:
    """Sessions with one connection, so that each meets what the one before left."""
    sessions = Sessions(open_engine(database.url("hansei_app"), pool_size=1))
    yield sessions
    await sessions.close()


async def bound(driver: Any) -> str:
    return await driver.fetchval("select current_setting('hansei.tenant_id', true)") or ""


async def test_begin_and_tenant_binding_are_one_round_trip(
    alone: Sessions, tenant: TestTenant
) -> None:
    sent: list[str] = []

    def hear(record: asyncpg.connection.LoggedQuery) -> None:
        sent.append(record.query)

    async with alone.raw_connection() as driver:
        driver.add_query_logger(hear)
    async with alone.for_tenant(tenant.id) as session:
        await session.execute(select(TenantRow.id))
    assert sent == [f"BEGIN; SET LOCAL hansei.tenant_id = '{tenant.id}'", "COMMIT"]


async def test_transaction_that_postgresql_rolls_back_is_not_committed(
    alone: Sessions, tenant: TestTenant
) -> None:
    """COMMIT of a failed transaction is no error for PostgreSQL: its answer says ROLLBACK."""

    async def change() -> None:
        async with alone.for_tenant(tenant.id) as session:
            driver = await asyncpg_connection(session)
            await driver.execute("insert into labels values ($1, 1, 'tag', 'refused')", tenant.id)
            with pytest.raises(asyncpg.DivisionByZeroError):
                await driver.execute("select 1 / 0")

    with pytest.raises(CommitRefused):
        await change()
    async with alone.for_tenant(tenant.id) as session:
        found = await session.execute(text("select name from labels where name = 'refused'"))
        assert found.all() == []


async def test_tenant_binding_ends_with_transaction(alone: Sessions, tenant: TestTenant) -> None:
    async with alone.for_tenant(tenant.id) as session:
        assert await bound(await asyncpg_connection(session)) == str(tenant.id)
    async with alone.without_tenant() as session:
        assert await bound(await asyncpg_connection(session)) == ""
    async with alone.raw_connection() as driver:
        assert await bound(driver) == ""
        assert not driver.is_in_transaction()


@pytest.mark.parametrize("how", ["error", "statement", "rollback", "cancelled"])
async def test_unfinished_transaction_is_rolled_back(
    alone: Sessions, owner: Sessions, tenant: TestTenant, how: str
) -> None:
    async def change() -> None:
        async with alone.for_tenant(tenant.id) as session:
            driver = await asyncpg_connection(session)
            await driver.execute("insert into labels values ($1, 1, 'tag', $2)", tenant.id, how)
            if how == "rollback":
                await session.rollback()
            elif how == "statement":
                await session.execute(text("select 1 / 0"))
            elif how == "cancelled":
                await session.execute(text("select pg_sleep(30)"))
            else:
                raise RuntimeError(how)

    task = asyncio.create_task(change())
    if how == "cancelled":
        await asyncio.sleep(0.2)
        task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    assert (ended is None) == (how == "rollback")
    async with alone.for_tenant(tenant.id) as session:
        labels = await session.execute(text("select name from labels where name = :n"), {"n": how})
        assert labels.all() == []


@pytest.mark.parametrize("sent", ["statement", "raw", "nothing"])
async def test_dead_connection_is_reported_and_replaced(
    alone: Sessions, database: Database, tenant: TestTenant, sent: str
) -> None:
    async def break_off() -> None:
        async with alone.for_tenant(tenant.id) as session:
            driver = await asyncpg_connection(session)
            await kill(database, driver.get_server_pid())
            if sent == "statement":
                await session.execute(text("select 1"))
            elif sent == "raw":
                await driver.execute("select 1")

    (ended,) = await asyncio.gather(break_off(), return_exceptions=True)
    assert is_connection_error(ended)
    async with alone.for_tenant(tenant.id) as session:
        assert await bound(await asyncpg_connection(session)) == str(tenant.id)


@pytest.mark.parametrize("message", CITUS_CHANGED)
def test_node_that_changes_in_a_statement_is_an_unavailable_database(message: str) -> None:
    """Citus reports it as an internal error. Other internal errors stay as they are."""
    lost = asyncpg.InternalServerError(f"{message} 17")
    assert isinstance(to_unavailable(DBAPIError("select", None, lost)), DatabaseUnavailable)
    assert to_unavailable(asyncpg.InternalServerError("cache lookup failed")) is None


async def kill(database: Database, pid: int) -> None:
    other = await asyncpg.connect(database.url("hansei_app"))
    try:
        assert await other.fetchval("select pg_terminate_backend($1::int, 5000::bigint)", pid)
    finally:
        await other.close()


async def test_connection_left_in_transaction_is_not_reused(
    alone: Sessions, tenant: TestTenant
) -> None:
    async with alone.raw_connection() as driver:
        await driver.execute(f"BEGIN; SET LOCAL hansei.tenant_id = '{tenant.id}'")
        left = driver.get_server_pid()
    async with alone.raw_connection() as driver:
        assert driver.get_server_pid() != left
        assert await bound(driver) == ""


@pytest.mark.parametrize("opened", ["for_tenant", "without_tenant"])
async def test_cancelled_begin_leaves_no_transaction_open(
    alone: Sessions,
    tenant: TestTenant,
    database: Database,
    opened: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pooler would give the connection of the server to nobody else."""
    async with alone.raw_connection() as driver:
        server_pid = driver.get_server_pid()
    has_begun = asyncio.Event()
    execute = asyncpg.Connection.execute

    async def execute_slowly(driver: Any, statement: str, *arguments: Any, **options: Any) -> str:
        tag = await execute(driver, statement, *arguments, **options)
        if statement.startswith("BEGIN"):
            has_begun.set()
            await asyncio.sleep(60)
        return tag

    monkeypatch.setattr(asyncpg.Connection, "execute", execute_slowly)

    async def begin() -> None:
        tenants = () if opened == "without_tenant" else (tenant.id,)
        async with getattr(alone, opened)(*tenants) as session:
            if opened == "without_tenant":
                await session.connection()

    task = asyncio.create_task(begin())
    await has_begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    other = await asyncpg.connect(database.url("hansei_app"))
    try:
        async with asyncio.timeout(10):
            while await other.fetchval(IS_IN_TRANSACTION, server_pid):
                await asyncio.sleep(0.02)
    finally:
        await other.close()


async def test_wait_for_a_free_connection_ends_as_unavailable_database(
    database: Database, tenant: TestTenant
) -> None:
    sessions = Sessions(open_engine(database.url("hansei_app"), pool_size=1, timeout=0.1))
    schedule = UpkeepSchedule(sessions)
    async with sessions.for_tenant(tenant.id):
        with pytest.raises(NoFreeConnection) as refused:
            async with sessions.for_tenant(tenant.id):
                pass
        with pytest.raises(NoFreeConnection):
            await schedule.mark_active(tenant.id)
    assert isinstance(refused.value, DatabaseUnavailable)
    assert to_problem(refused.value).status_code == 503
    await sessions.close()
