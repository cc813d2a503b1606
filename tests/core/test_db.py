"""Transactions: begun with their tenant in one round trip, ended whole, never left to the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select, text

from apps.memory_api.core.away import is_away
from apps.memory_api.core.db import Sessions, open_engine, raw_connection
from apps.memory_api.tenants.tables import Tenant
from tests.conftest import Database, TestTenant


@pytest.fixture
async def alone(database: Database) -> AsyncIterator[Sessions]:
    """Sessions with one connection, so that each meets what the one before left."""
    sessions = Sessions(open_engine(database.url("hansei_app"), pool_size=1))
    yield sessions
    await sessions.close()


async def bound(driver: Any) -> str:
    return await driver.fetchval("select current_setting('hansei.tenant_id', true)") or ""


async def test_begin_and_the_binding_are_one_round_trip(
    alone: Sessions, tenant: TestTenant
) -> None:
    sent: list[str] = []

    def hear(record: asyncpg.connection.LoggedQuery) -> None:
        sent.append(record.query)

    async with alone.statement() as driver:
        driver.add_query_logger(hear)
    async with alone.tenant(tenant.id) as session:
        await session.execute(select(Tenant.id))
    assert sent == [f"BEGIN; SET LOCAL hansei.tenant_id = '{tenant.id}'", "COMMIT"]


async def test_the_binding_ends_with_the_transaction(alone: Sessions, tenant: TestTenant) -> None:
    async with alone.tenant(tenant.id) as session:
        assert await bound(await raw_connection(session)) == str(tenant.id)
    async with alone.shared() as session:
        assert await bound(await raw_connection(session)) == ""
    async with alone.statement() as driver:
        assert await bound(driver) == ""
        assert not driver.is_in_transaction()


@pytest.mark.parametrize("how", ["error", "statement", "rollback", "cancelled"])
async def test_what_is_not_ended_well_is_undone(
    alone: Sessions, owner: Sessions, tenant: TestTenant, how: str
) -> None:
    async def change() -> None:
        async with alone.tenant(tenant.id) as session:
            driver = await raw_connection(session)
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
    async with alone.tenant(tenant.id) as session:
        labels = await session.execute(text("select name from labels where name = :n"), {"n": how})
        assert labels.all() == []


@pytest.mark.parametrize("sent", ["statement", "raw", "nothing"])
async def test_a_connection_that_dies_says_so_and_is_replaced(
    alone: Sessions, database: Database, tenant: TestTenant, sent: str
) -> None:
    async def break_off() -> None:
        async with alone.tenant(tenant.id) as session:
            driver = await raw_connection(session)
            await kill(database, driver.get_server_pid())
            if sent == "statement":
                await session.execute(text("select 1"))
            elif sent == "raw":
                await driver.execute("select 1")

    (ended,) = await asyncio.gather(break_off(), return_exceptions=True)
    assert is_away(ended)
    async with alone.tenant(tenant.id) as session:
        assert await bound(await raw_connection(session)) == str(tenant.id)


async def kill(database: Database, pid: int) -> None:
    other = await asyncpg.connect(database.url("hansei_app"))
    try:
        assert await other.fetchval("select pg_terminate_backend($1, 5000)", pid)
    finally:
        await other.close()


async def test_a_connection_left_in_the_middle_is_not_handed_out(
    alone: Sessions, tenant: TestTenant
) -> None:
    async with alone.statement() as driver:
        await driver.execute(f"BEGIN; SET LOCAL hansei.tenant_id = '{tenant.id}'")
        left = driver.get_server_pid()
    async with alone.statement() as driver:
        assert driver.get_server_pid() != left
        assert await bound(driver) == ""
