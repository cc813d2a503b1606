"""Run the Alembic migrations as the owner of the database."""

from __future__ import annotations

import re
from collections.abc import Callable

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_api.core.db import PGVECTOR_MISSING, driver_url
from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path, read_sql, schema_digest


class UnknownRevision(Exception):
    """The database was migrated by another version. The message says what to do."""


def record_schema_digest(ctx: MigrationContext, **_: object) -> None:
    """Called by Alembic after each migration."""
    if ctx.connection is not None:
        ctx.connection.execute(text(f"comment on table alembic_version is '{schema_digest()}'"))


def alembic_config(connection: Connection | None = None) -> Config:
    cfg = Config()
    folder = packaged_path("migrations")
    cfg.set_main_option("script_location", str(folder).replace("%", "%%"))
    cfg.set_main_option("prepend_sys_path", str(folder.parent).replace("%", "%%"))
    cfg.set_main_option("path_separator", "newline")
    cfg.attributes["connection"] = connection
    return cfg


def head_revision() -> str:
    """The newest revision in this release."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head() or ""


_FUNCTION = re.compile(r"create (?:or replace )?function ([\w.]{1,100})\(", re.IGNORECASE)


def function_statements() -> dict[str, str]:
    """The `create function` statement of each database function, by its name, as the newest
    migration that defines it has it.
    """
    script = ScriptDirectory.from_config(alembic_config())
    found: dict[str, str] = {}
    for revision in reversed(list(script.walk_revisions())):
        for statement in revision.module.statements():
            lines = (line for line in statement.splitlines() if not line.startswith("--"))
            if match := _FUNCTION.match(next((line for line in lines if line), "")):
                found[match[1]] = statement
    return found


async def upgrade(owner_url: str, revision: str = "head") -> None:
    """Run all pending migrations in one transaction. An advisory lock makes a second caller
    wait. Raises ConfigurationError without the extension pgvector, which only a superuser can
    create.
    """

    def migrate(connection: Connection) -> None:
        if connection.scalar(text("select to_regtype('vector')")) is None:
            raise ConfigurationError(PGVECTOR_MISSING)
        _reject_unknown_revision(connection)
        command.upgrade(alembic_config(connection), revision)

    await _run(owner_url, migrate)


def _reject_unknown_revision(connection: Connection) -> None:
    if MigrationContext.configure(connection).get_current_revision() is None:
        return
    current, digest = connection.execute(text(read_sql("core/catalog.sql", "schema_version"))).one()
    script = ScriptDirectory.from_config(alembic_config())
    is_changed = current == script.get_current_head() and digest != schema_digest()
    if is_changed or re.fullmatch(r"00[01]\d|002[0-4]", current):
        raise UnknownRevision(
            f"The database has the schema of a commit that was never released (revision {current}),"
            " and cannot be upgraded. Export your playbooks with that commit and start with an"
            " empty database."
        )
    if current in {known.revision for known in script.walk_revisions()}:
        return
    raise UnknownRevision(
        f"The database has revision {current}, which this release does not know. Use the release"
        " that migrated it, or a newer one."
    )


async def downgrade(owner_url: str, revision: str) -> None:
    await _run(owner_url, lambda c: command.downgrade(alembic_config(c), revision))


async def _run(owner_url: str, migrate: Callable[[Connection], object]) -> None:
    engine = create_async_engine(driver_url(owner_url), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            # If this process is killed, the server ends its statement and so frees its locks.
            await connection.execute(text("set local client_connection_check_interval = '1s'"))
            await connection.execute(
                text("select pg_advisory_xact_lock(hashtextextended('hansei.migrate', 0))")
            )
            await connection.run_sync(migrate)
    finally:
        await engine.dispose()
