"""`hansei tenant sql-role` creates a login that works at once, and deletes it."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest
import typer
from typer.testing import CliRunner, Result

from memory_api.__main__ import register
from tests.conftest import Database, TestTenant


async def run(*arguments: str) -> Result:
    app = typer.Typer()
    register(app)
    return await asyncio.to_thread(CliRunner().invoke, app, ["tenant", "sql-role", *arguments])


async def test_login_is_created_and_dropped(
    tenant: TestTenant, make_tenant, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_OWNER_URL", database.url("hansei_owner"))
    made = await run(tenant.slug, "--json")
    assert made.exit_code == 0, made.output
    login = json.loads(made.stdout)
    connection = await asyncpg.connect(login["url"])
    assert await connection.fetchval("select current_user") == login["role"]
    assert await connection.fetchval("select count(*) from bullets") == 0
    await connection.close()
    other = await make_tenant()
    refused = await run(other.slug, "--drop", login["role"])
    assert (refused.exit_code, "has no login" in refused.output) == (1, True)
    assert (await run(tenant.slug, "--drop", login["role"])).exit_code == 0
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(login["url"])
    missing = await run("no-such-tenant")
    assert (missing.exit_code, "not found" in missing.output) == (1, True)


async def test_login_is_dropped_with_what_it_stored_and_its_sessions(
    tenant: TestTenant, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSEI_OWNER_URL", database.url("hansei_owner"))
    login = json.loads((await run(tenant.slug, "--json")).stdout)
    connection = await asyncpg.connect(login["url"])
    await connection.execute("set default_transaction_read_only = off")
    await database.server.run("alter event trigger hansei_logins disable", database.name)
    try:
        await connection.execute("alter default privileges grant select on tables to public")
    finally:
        await database.server.run("alter event trigger hansei_logins enable", database.name)
    dropped = await run(tenant.slug, "--drop", login["role"])
    assert dropped.exit_code == 0, dropped.output
    with pytest.raises((asyncpg.AdminShutdownError, asyncpg.InterfaceError)):
        await connection.fetchval("select 1")
