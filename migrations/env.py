"""Alembic's entry: runs on the connection that `core.migrate` hands over, or opens the owner's URL
itself.
"""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from apps.memory_api.core.db import Base, driver_url
from apps.memory_api.core.settings import Settings
from apps.memory_api.curator import tables as _curator  # noqa: F401
from apps.memory_api.embeddings import tables as _embeddings  # noqa: F401
from apps.memory_api.evaluation import tables as _evaluation  # noqa: F401
from apps.memory_api.jobs import tables as _jobs  # noqa: F401
from apps.memory_api.memory import tables as _memory  # noqa: F401
from apps.memory_api.playbook import tables as _playbook  # noqa: F401
from apps.memory_api.tenants import tables as _tenants  # noqa: F401
from apps.memory_api.traces import tables as _traces  # noqa: F401


def include_name(name: str | None, type_: str, _parents: object) -> bool:
    """The queue's tables are pgqueuer's, and indexes made at run time for one tenant are nobody's
    model.
    """
    if type_ == "table":
        return not (name or "").startswith("pgqueuer")
    return not (type_ == "index" and (name or "").startswith("hansei_hnsw_"))


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=include_name,
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_online() -> None:
    url = Settings.load().owner_url
    if url is None:
        raise SystemExit("Set HANSEI_OWNER_URL to the owner's database URL.")
    engine = create_async_engine(driver_url(url), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(run)
    await engine.dispose()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    asyncio.run(run_online())
