from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_api.embedded.provisioning import provision_database
from memory_api.embedded.server import EmbeddedPostgres


@asynccontextmanager
async def as_role(
    server: EmbeddedPostgres, role: str, database: str = "hansei"
) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(server.url(role, database))
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def guarded(server: EmbeddedPostgres) -> AsyncIterator[str]:
    """A table of the owner whose one row no policy shows."""
    async with as_role(server, "hansei_owner") as owner:
        await owner.execute("create table guarded (n int)")
        await owner.execute("insert into guarded values (1)")
        await owner.execute("alter table guarded enable row level security")
        await owner.execute("alter table guarded force row level security")
        await owner.execute("grant select on guarded to hansei_app, hansei_worker")
        yield "guarded"
        await owner.execute("drop table guarded")


async def test_roles_have_least_privileges(server: EmbeddedPostgres) -> None:
    async with as_role(server, "postgres") as superuser:
        rows = await superuser.fetch(
            "select rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication"
            " from pg_roles where rolname like 'hansei%' order by 1"
        )
        owned = await superuser.fetchval(
            "select count(*) from pg_shdepend d join pg_roles r on d.refobjid = r.oid"
            " where d.deptype = 'o' and r.rolname in ('hansei_app', 'hansei_worker')"
        )
        owner = await superuser.fetchval(
            "select pg_get_userbyid(datdba) from pg_database where datname = 'hansei'"
        )
    assert [tuple(row) for row in rows] == [
        ("hansei_app", False, False, False, False, False),
        ("hansei_owner", False, False, True, False, False),
        ("hansei_worker", False, False, False, False, False),
    ]
    assert owned == 0
    assert owner == "hansei_owner"


@pytest.mark.parametrize("role", ["hansei_app", "hansei_worker"])
async def test_service_role_cannot_bypass_row_security(
    server: EmbeddedPostgres, guarded: str, role: str
) -> None:
    async with as_role(server, role) as connection:
        assert await connection.fetchval(f"select count(*) from {guarded}") == 0
        for attempt in (
            f"alter table {guarded} disable row level security",
            "set role hansei_owner",
            "set role postgres",
            f"alter role {role} bypassrls",
            "create table mine (n int)",
            "create schema mine",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(attempt)
        await connection.execute("set row_security = off")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetchval(f"select count(*) from {guarded}")


async def test_owner_migrates_without_superuser(server: EmbeddedPostgres, guarded: str) -> None:
    async with as_role(server, "hansei_owner") as owner:
        assert await owner.fetchval(f"select count(*) from {guarded}") == 0  # forced
        await owner.execute("create role analyst login")
        await owner.execute("grant connect on database hansei to analyst")
        await owner.execute("revoke connect on database hansei from analyst")
        await owner.execute("drop role analyst")
        await owner.execute("alter role hansei_app set statement_timeout = '0'")
        for attempt in (
            "create role wizard superuser",
            "create role wizard bypassrls",
            "alter role hansei_app bypassrls",
            "alter role postgres login",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await owner.execute(attempt)


async def test_new_role_cannot_connect(server: EmbeddedPostgres) -> None:
    async with as_role(server, "postgres") as superuser:
        await superuser.execute("create role stranger login password 'stranger'")
        try:
            url = server.url("hansei_app").replace("hansei_app", "stranger")
            url = url.replace(server.password("hansei_app"), "stranger")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await asyncpg.connect(url)
        finally:
            await superuser.execute("drop role stranger")


async def test_vectors_work_for_the_app(server: EmbeddedPostgres) -> None:
    async with as_role(server, "hansei_app") as app:
        assert await app.fetchval("select '[1,0]'::halfvec <=> '[0,1]'::halfvec") == 1


async def test_sqlalchemy_takes_the_url(server: EmbeddedPostgres) -> None:
    url = server.url("hansei_app").replace("postgresql:", "postgresql+asyncpg:")
    engine = create_async_engine(url, poolclass=NullPool)
    async with engine.connect() as connection:
        assert await connection.scalar(text("select current_user")) == "hansei_app"
    await engine.dispose()


async def test_repeated_and_concurrent_provisioning_changes_nothing(
    server: EmbeddedPostgres,
) -> None:
    await asyncio.gather(*(provision_database(server) for _ in range(4)))
    async with as_role(server, "hansei_app") as app:
        assert await app.fetchval("select current_user") == "hansei_app"


async def test_concurrent_provisioning_creates_one_database(server: EmbeddedPostgres) -> None:
    name = 'odd "name"'
    await asyncio.gather(*(provision_database(server, name) for _ in range(4)))
    async with as_role(server, "postgres", "postgres") as superuser:
        owner = await superuser.fetchval(
            "select pg_get_userbyid(datdba) from pg_database where datname = $1", name
        )
        await superuser.execute('drop database "odd ""name"""')
    assert owner == "hansei_owner"


async def test_interrupted_provisioning_is_completed(server: EmbeddedPostgres) -> None:
    async with as_role(server, "postgres", "postgres") as superuser:
        await superuser.execute("create database half owner hansei_owner")
        await superuser.execute("alter role hansei_worker bypassrls password 'other'")
        await provision_database(server, "half")
        bypass = await superuser.fetchval(
            "select rolbypassrls from pg_roles where rolname = 'hansei_worker'"
        )
        async with as_role(server, "hansei_worker", "half") as worker:
            assert await worker.fetchval("select '[1]'::vector is not null")
        await superuser.execute("drop database half")
    assert bypass is False
