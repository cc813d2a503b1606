"""Entry point of Alembic: uses the connection that `core.migrations` passes, or opens the owner's
URL.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_api.core.db import Base, driver_url
from memory_api.core.migrations import record_schema_digest
from memory_api.core.resources import PACKAGE
from memory_api.core.settings import Settings

# Autogenerate compares the database with the tables of the modules that are imported here.
for _path in sorted(PACKAGE.glob("*/tables.py")):
    import_module(f"memory_api.{_path.parent.name}.tables")
import_module("memory_api.api.idempotency")


def include_name(name: str | None, type_: str, _parents: object) -> bool:
    """Excludes the vector indexes that the service creates at run time."""
    return not (type_ == "index" and (name or "").startswith("hansei_hnsw_"))


def run_migrations(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=include_name,
        compare_server_default=True,
        on_version_apply=record_schema_digest,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_with_owner_url() -> None:
    url = Settings.load().owner_url
    if url is None:
        raise SystemExit("Set HANSEI_OWNER_URL to the owner's database URL.")
    engine = create_async_engine(driver_url(url), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(run_migrations)
    await engine.dispose()


passed_connection: Connection | None = context.config.attributes.get("connection")
if passed_connection is not None:
    run_migrations(passed_connection)
else:
    asyncio.run(run_with_owner_url())
