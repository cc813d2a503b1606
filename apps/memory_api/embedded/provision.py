"""Roles, database and extension of the embedded server; everything else is the migrations' work."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from apps.memory_api.embedded.passwords import APP, OWNER, SUPERUSER, WORKER
from apps.memory_api.embedded.postgres import EmbeddedPostgres

# What nobody is given by default is said all the same: an operator may have changed it.
_ROLES = {
    OWNER: "login nosuperuser nobypassrls noreplication nocreatedb createrole",
    APP: "login nosuperuser nobypassrls noreplication nocreatedb nocreaterole",
    WORKER: "login nosuperuser nobypassrls noreplication nocreatedb nocreaterole",
}
# `create extension` comes last in _fill, so a current extension says that all of it is done.
_DONE = (
    "select installed_version = default_version from pg_available_extensions where name = 'vector'"
)


class _Connection(Protocol):
    """What is used of asyncpg's connection, which carries no types."""

    async def execute(self, query: str) -> str: ...
    async def fetchval(self, query: str, *args: object) -> object: ...
    async def close(self) -> None: ...
    def transaction(self) -> AbstractAsyncContextManager[None]: ...


async def provision(pg: EmbeddedPostgres, database: str = "hansei") -> None:
    """Make what is missing. Two round trips when nothing is; may run in several processes at once.

    `hansei_owner` owns the database and may create roles; `hansei_app` and `hansei_worker` own
    nothing and cannot bypass row-level security. The server must be started.
    """
    if await _is_done(pg, database):
        return
    async with _connected(pg.url(SUPERUSER, "postgres")) as connection:
        # a statement that fails must not put a password into the log
        await connection.execute("set log_min_error_statement = panic")
        await connection.execute("select pg_advisory_lock(hashtextextended('hansei.provision', 0))")
        for role in _ROLES:
            await _make_role(connection, pg, role)
        # an administrator of the two, not a member: migrations may set and grant things for them
        await connection.execute(
            f"grant {APP}, {WORKER} to {OWNER} with admin true, inherit false, set false"
        )
        await _make_database(connection, database)
        await _fill(pg, database)


@asynccontextmanager
async def _connected(url: str) -> AsyncGenerator[_Connection]:
    connection = cast(_Connection, await asyncpg.connect(url))  # pyright: ignore[reportUnknownMemberType]
    try:
        yield connection
    finally:
        await connection.close()


async def _is_done(pg: EmbeddedPostgres, database: str) -> bool:
    try:
        async with _connected(pg.url(SUPERUSER, database)) as connection:
            return bool(await connection.fetchval(_DONE))
    except asyncpg.InvalidCatalogNameError:
        return False


async def _make_role(connection: _Connection, pg: EmbeddedPostgres, role: str) -> None:
    known = await connection.fetchval("select 1 from pg_roles where rolname = $1", role)
    verb = "alter" if known else "create"
    secret = await connection.fetchval("select quote_literal($1::text)", pg.password(role))
    await connection.execute(f"{verb} role {role} {_ROLES[role]} password {secret}")


async def _make_database(connection: _Connection, database: str) -> None:
    name = await connection.fetchval("select quote_ident($1)", database)
    if not await connection.fetchval("select 1 from pg_database where datname = $1", database):
        await connection.execute(f"create database {name} owner {OWNER}")
    await connection.execute(f"revoke all on database {name} from public")
    await connection.execute(f"grant connect on database {name} to {APP}, {WORKER}")


async def _fill(pg: EmbeddedPostgres, database: str) -> None:
    async with _connected(pg.url(SUPERUSER, database)) as connection, connection.transaction():
        await connection.execute("revoke create on schema public from public")
        await connection.execute(f"grant usage on schema public to {APP}, {WORKER}")
        await connection.execute("create extension if not exists vector")
        await connection.execute("alter extension vector update")
