"""Create the roles, the database and the extension of the embedded server. Migrations do the
rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import asyncpg

from memory_api.core.resources import read_sql
from memory_api.embedded.data_directory import APP, OWNER, SUPERUSER, WORKER

RESTRICT_LOGINS = read_sql("embedded/superuser.sql", "restrict_logins")
# Defaults are explicit, because an operator may have changed them.
_ROLES = {
    OWNER: "login nosuperuser nobypassrls noreplication nocreatedb createrole",
    APP: "login nosuperuser nobypassrls noreplication nocreatedb nocreaterole",
    WORKER: "login nosuperuser nobypassrls noreplication nocreatedb nocreaterole",
}
# The last statements of `_prepare_schema`, and what the newest release added to it.
_IS_COMPLETE = (
    "select installed_version = default_version"
    " and exists (select from pg_event_trigger where evtname = 'hansei_logins')"
    " from pg_available_extensions where name = 'vector'"
)


class DatabaseServer(Protocol):
    def url(self, role: str, database: str) -> str: ...
    def password(self, role: str) -> str: ...


async def provision_database(pg: DatabaseServer, database: str = "hansei") -> None:
    """Create whatever is missing. The server must be running. Several processes may call it
    concurrently. Takes two round trips if nothing is missing.

    `hansei_owner` owns the database and may create roles. `hansei_app` and `hansei_worker` own
    nothing and cannot bypass row-level security.
    """
    if await _is_complete(pg, database):
        return
    async with _connect(pg.url(SUPERUSER, "postgres")) as connection:
        # Keeps passwords out of the log if a statement fails.
        await connection.execute("set log_min_error_statement = panic")
        await connection.execute("select pg_advisory_lock(hashtextextended('hansei.provision', 0))")
        for role in _ROLES:
            await _create_role(connection, pg, role)
        # With admin but without membership, the owner's migrations can configure both roles.
        await connection.execute(
            f"grant {APP}, {WORKER} to {OWNER} with admin true, inherit false, set false"
        )
        await _create_database(connection, database)
        await _prepare_schema(pg, database)


@asynccontextmanager
async def _connect(url: str) -> AsyncGenerator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _is_complete(pg: DatabaseServer, database: str) -> bool:
    try:
        async with _connect(pg.url(SUPERUSER, database)) as connection:
            return bool(await connection.fetchval(_IS_COMPLETE))
    except asyncpg.InvalidCatalogNameError:
        return False


async def _create_role(connection: asyncpg.Connection[Any], pg: DatabaseServer, role: str) -> None:
    exists = await connection.fetchval("select 1 from pg_roles where rolname = $1", role)
    verb = "alter" if exists else "create"
    secret = await connection.fetchval("select quote_literal($1::text)", pg.password(role))
    await connection.execute(f"{verb} role {role} {_ROLES[role]} password {secret}")


async def _create_database(connection: asyncpg.Connection[Any], database: str) -> None:
    name = await connection.fetchval("select quote_ident($1)", database)
    if not await connection.fetchval("select 1 from pg_database where datname = $1", database):
        await connection.execute(f"create database {name} owner {OWNER}")
    await connection.execute(f"revoke all on database {name} from public")
    await connection.execute(f"grant connect on database {name} to {APP}, {WORKER}")


async def _prepare_schema(pg: DatabaseServer, database: str) -> None:
    async with _connect(pg.url(SUPERUSER, database)) as connection, connection.transaction():
        await connection.execute("revoke create on schema public from public")
        await connection.execute(f"grant usage on schema public to {APP}, {WORKER}")
        await connection.execute(RESTRICT_LOGINS)
        await connection.execute("create extension if not exists vector")
        await connection.execute("alter extension vector update")
