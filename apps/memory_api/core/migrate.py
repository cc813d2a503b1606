"""Bring a database to the newest schema, as its owner."""

from __future__ import annotations

from collections.abc import Callable

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from apps.memory_api.core.db import driver_url
from apps.memory_api.core.shipped import shipped


def config(connection: Connection | None = None) -> Config:
    cfg = Config()
    folder = shipped("migrations")
    cfg.set_main_option("script_location", str(folder).replace("%", "%%"))
    cfg.set_main_option("prepend_sys_path", str(folder.parent).replace("%", "%%"))
    cfg.set_main_option("path_separator", "newline")
    cfg.attributes["connection"] = connection
    return cfg


def head() -> str:
    """The revision this code needs."""
    return ScriptDirectory.from_config(config()).get_current_head() or ""


async def upgrade(owner_url: str, revision: str = "head") -> None:
    """Run what is missing in one transaction. One migration at a time: a second caller waits for
    the first.
    """
    await _run(owner_url, lambda c: command.upgrade(config(c), revision))


async def downgrade(owner_url: str, revision: str) -> None:
    await _run(owner_url, lambda c: command.downgrade(config(c), revision))


async def _run(owner_url: str, step: Callable[[Connection], object]) -> None:
    engine = create_async_engine(driver_url(owner_url), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.execute(
                text("select pg_advisory_xact_lock(hashtextextended('hansei.migrate', 0))")
            )
            await connection.run_sync(step)
    finally:
        await engine.dispose()
