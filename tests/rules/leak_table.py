"""What five usual mistakes in a statement show of another tenant: in the tables of the service, and
in copies of them without policies. `bench leaks` prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import asyncpg

from memory_api.core.db import Sessions, asyncpg_connection, open_engine
from tests.rules.isolation import sow, tenant_tables

APPLICATION, OWNER = "hansei_app", "hansei_owner"
ALL_ROWS = "select tenant_id from {table}"
MISTAKES: dict[str, tuple[str, str, bool]] = {
    "no WHERE": (APPLICATION, ALL_ROWS, True),
    "wrong join": (
        APPLICATION,
        "select b.tenant_id from {table} a join {table} b on a.tenant_id = '{mine}'",
        True,
    ),
    "tenant of the request body": (
        APPLICATION,
        "select tenant_id from {table} where tenant_id = '{other}'",
        True,
    ),
    "pooled connection of an old tenant": (APPLICATION, ALL_ROWS, False),
    "missing role": (OWNER, ALL_ROWS, True),
}
"""The role, the statement, and whether it runs in a transaction of the tenant `mine`. Otherwise it
runs without a tenant on the connection that served `other` before.
"""
LeakTable = dict[str, dict[str, tuple[int, int]]]
"""By table and mistake: rows of another tenant with the policies, and without them."""


async def leak_table(url: Callable[[str], str]) -> LeakTable:
    """In an empty database of its own, whose URL of each role `url` returns."""
    mine, other = uuid4(), uuid4()
    superuser = await asyncpg.connect(url("postgres"))
    async with superuser.transaction():
        tables = await tenant_tables(superuser)
        await sow(superuser, (mine, other))
        await superuser.execute("create schema copies; grant usage on schema copies to public")
        for table in tables:
            await superuser.execute(f"create table copies.{table} as table {table}")
        await superuser.execute("grant select on all tables in schema copies to public")
    await superuser.close()
    found: LeakTable = {table: {} for table in tables}
    for mistake, (role, statement, is_bound) in MISTAKES.items():
        sessions = Sessions(open_engine(url(role), pool_size=1))
        for table in tables:
            here, without = [
                await _leaked_rows(
                    sessions,
                    statement.format(table=t, mine=mine, other=other),
                    mine,
                    other,
                    is_bound,
                )
                for t in (table, f"copies.{table}")
            ]
            found[table][mistake] = here, without
        await sessions.engine.dispose()
    return found


async def _leaked_rows(
    sessions: Sessions, statement: str, mine: UUID, other: UUID, is_bound: bool
) -> int:
    counted = f"select count(*) from ({statement}) found where tenant_id = '{other}'"
    if is_bound:
        async with sessions.for_tenant(mine) as session:
            return await (await asyncpg_connection(session)).fetchval(counted)
    async with sessions.for_tenant(other) as session:
        assert await (await asyncpg_connection(session)).fetchval(counted) == 1
    async with sessions.raw_connection() as connection:
        return await connection.fetchval(counted)
