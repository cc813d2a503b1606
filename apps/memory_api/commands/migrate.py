"""`hansei migrate`: migrates the schema and sets the passwords of the service's roles.

`hansei up` runs it in a child process, so that the supervisor does not import Alembic and
SQLAlchemy.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
from sqlalchemy.engine import make_url

from hansei.cli.terminal import print_json, print_line
from memory_api.auth.identity import KeyScope
from memory_api.auth.queries import create_key, create_tenant
from memory_api.commands.database import (
    CommandFailed,
    DatabaseUrls,
    exit_on_error,
    open_database,
)
from memory_api.commands.sql_logins import scram_verifier
from memory_api.commands.tenants import owner_sessions
from memory_api.core.ids import to_tenant_id
from memory_api.core.migrations import UnknownRevision, head_revision, upgrade
from memory_api.core.settings import Settings
from memory_api.distribution.distribute import distribute_new_tables

ROLES = ("hansei_app", "hansei_worker")


def run_migrate(data_dir: Path | None, revision: str = "head") -> None:
    with exit_on_error():
        settings = Settings.load()
        if data_dir is None and settings.owner_url is not None:
            urls = DatabaseUrls(
                settings.database_url or "", settings.worker_url or "", settings.owner_url
            )
            asyncio.run(migrate_and_grant(urls, revision))
        else:
            with open_database(settings, data_dir, create=True) as urls:
                asyncio.run(migrate_and_grant(urls, revision))
    newest = head_revision() if revision == "head" else revision
    print_line(f"The database is at revision {newest}.")


async def migrate_and_grant(urls: DatabaseUrls, revision: str = "head") -> None:
    """Migrate as the owner, distribute new tables if Citus distributes the database, then give the
    service's roles the passwords in their URLs.
    """
    owner = urls.require_owner()
    try:
        await upgrade(owner, revision)
        if urls.embedded is None:
            await distribute_new_tables(owner, report=print_line)
            await set_role_passwords(owner, (urls.app, urls.worker))
    except UnknownRevision as error:
        raise CommandFailed(str(error)) from error
    except (OSError, asyncpg.PostgresError) as error:
        raise CommandFailed(f"The migration failed: {error}") from error


async def set_role_passwords(owner_url: str, urls: tuple[str, ...]) -> None:
    """Set LOGIN and the password for each of the service's roles in these URLs."""
    connection: asyncpg.Connection = await asyncpg.connect(owner_url)
    try:
        for url in urls:
            parts = make_url(url) if url else None
            if parts is None or parts.username not in ROLES or not parts.password:
                continue
            verifier = scram_verifier(parts.password)
            await connection.execute(f"alter role {parts.username} login password '{verifier}'")
    finally:
        await connection.close()


def run_prepare(name: str, data_dir: Path | None) -> None:
    with exit_on_error(), open_database(Settings.load(), data_dir, create=True) as urls:
        key = asyncio.run(_prepare(urls, name))
    print_json({"key": key})


async def _prepare(urls: DatabaseUrls, name: str) -> str:
    await migrate_and_grant(urls)
    async with (
        owner_sessions(urls.require_owner()) as sessions,
        sessions.for_tenant(to_tenant_id(name)) as session,
    ):
        await create_tenant(session, name)
        _, key = await create_key(session, scopes=[KeyScope.ADMIN], name="hansei up")
    return key.text
