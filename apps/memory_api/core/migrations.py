"""Run the Alembic migrations as the owner of the database."""

from __future__ import annotations

from collections.abc import Callable

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_api.core.db import driver_url
from memory_api.core.resources import packaged_path


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


async def upgrade(owner_url: str, revision: str = "head") -> None:
    """Run all pending migrations in one transaction. An advisory lock makes a second caller
    wait.
    """
    await _run(owner_url, lambda c: command.upgrade(alembic_config(c), revision))


async def downgrade(owner_url: str, revision: str) -> None:
    await _run(owner_url, lambda c: command.downgrade(alembic_config(c), revision))


async def _run(owner_url: str, migrate: Callable[[Connection], object]) -> None:
    engine = create_async_engine(driver_url(owner_url), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.execute(
                text("select pg_advisory_xact_lock(hashtextextended('hansei.migrate', 0))")
            )
            await connection.run_sync(migrate)
    finally:
        await engine.dispose()
