"""The database: engine, sessions, and the one place where a tenant is bound to a transaction.

A session is a transaction. `Sessions.tenant(id)` opens one, binds the tenant with `SET LOCAL`
(text, because SET takes
no parameters and `set_config` would not travel to Citus workers), and commits on the way out.
Row-level security does the rest:
no tenant bound means no rows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
from pgvector.asyncpg import register_vector
from pgvector.sqlalchemy import HALFVEC as TextHALFVEC
from sqlalchemy import Dialect, MetaData, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.pool import NullPool


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "ck": "%(table_name)s_%(constraint_name)s_check",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "pk": "%(table_name)s_pkey",
        }
    )


class HalfVec(TextHALFVEC):
    """pgvector's type binds text; with the binary codec registered on the connection the value must
    pass untouched.
    """

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> None:
        return None


def driver_url(url: str) -> URL:
    """A plain `postgresql://` URL as SQLAlchemy wants it for asyncpg."""
    return make_url(url).set(drivername="postgresql+asyncpg")


def open_engine(
    url: str, *, pool_size: int = 10, statement_cache: int = 100, codecs: bool = True
) -> AsyncEngine:
    """`codecs=False` connects to a database that may not have the vector extension."""
    engine = create_async_engine(
        driver_url(url),
        pool_size=pool_size,
        max_overflow=0,
        hide_parameters=True,  # errors are logged and kept; what tenants store is not
        connect_args={
            "statement_cache_size": statement_cache,
            "prepared_statement_cache_size": statement_cache,
            "server_settings": {"application_name": "hansei", "jit": "off"},
        },
    )
    return prepare_engine(engine) if codecs else engine


def prepare_engine(engine: AsyncEngine) -> AsyncEngine:
    """Register the binary vector codecs on every new connection, and hand out none that is closed:
    the driver is told when the server goes, so nothing need be sent to find out.
    """

    @event.listens_for(engine.sync_engine, "connect")
    def register_codecs(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.run_async(register_vector)

    @event.listens_for(engine.sync_engine, "checkout")
    def refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.driver_connection.is_closed():
            raise InvalidatePoolError("The server has closed this connection.")

    return engine


class _Borrowed:
    """A connection of somebody's pool: closing gives it back."""

    def __init__(self, pool: asyncpg.Pool, connection: Any) -> None:
        self._pool = pool
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        await self._pool.release(self._connection, timeout=timeout)

    def terminate(self) -> None:
        self._connection.terminate()


def engine_over(pool: asyncpg.Pool) -> AsyncEngine:
    """An engine on an asyncpg pool that somebody else owns and closes."""

    async def borrow() -> Any:
        return _Borrowed(pool, await pool.acquire())

    engine = create_async_engine("postgresql+asyncpg://", async_creator=borrow, poolclass=NullPool)
    return prepare_engine(engine)


class Sessions:
    """Opens transactions; owns the engine."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine

    @asynccontextmanager
    async def tenant(self, tenant_id: UUID) -> AsyncGenerator[AsyncSession]:
        """One transaction that sees and writes this tenant's rows alone. Commits on leaving, rolls
        back on an error.
        """
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            await bind_tenant(session, tenant_id)
            yield session

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[AsyncSession]:
        """One transaction with no tenant: it sees the queue and nothing of anybody's."""
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @asynccontextmanager
    async def statement(self) -> AsyncGenerator[asyncpg.Connection[Any]]:
        """The driver's connection outside any transaction, for the one call that binds its tenant
        itself (`hansei_search`). Anything else would see no rows.
        """
        async with self.engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            yield driver

    async def close(self) -> None:
        await self.engine.dispose()


async def bind_tenant(session: AsyncSession, tenant_id: UUID) -> None:
    """Bind the running transaction to a tenant. `tenant_id` must be a UUID object: its text form is
    safe to splice.
    """
    await session.execute(text(f"SET LOCAL hansei.tenant_id = '{UUID(str(tenant_id))}'"))
    session.info["tenant_id"] = tenant_id


def tenant_of(session: AsyncSession) -> UUID:
    """The tenant this session is bound to; statements name it beside row-level security."""
    return session.info["tenant_id"]


async def raw_connection(session: AsyncSession) -> asyncpg.Connection[Any]:
    """The asyncpg connection under a session, inside its transaction: for the queue and for
    hand-written SQL.
    """
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert driver is not None
    return driver
