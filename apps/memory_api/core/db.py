"""The database: engine, sessions, and the one place where a tenant is bound to a transaction.

A session is a transaction. `Sessions.tenant(id)` opens one, binds the tenant with `SET LOCAL`
(text, because SET takes no parameters and `set_config` would not travel to Citus workers), and
commits on the way out. Row-level security does the rest: no tenant bound means no rows.

BEGIN and the binding go in one round trip. So SQLAlchemy's engine is in autocommit, and its events
begin, commit and roll back.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
from pgvector.asyncpg import register_vector
from pgvector.sqlalchemy import HALFVEC as TextHALFVEC
from sqlalchemy import Connection, Dialect, MetaData, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.pool import NullPool

from apps.memory_api.core.errors import Misconfigured

TENANT = "tenant_id"
"""What a session and the connection under it know their tenant by."""
NO_EXTENSION = "this database has no pgvector: as a superuser, `create extension vector`"


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
        isolation_level="AUTOCOMMIT",  # transactions are begun and ended in `prepare_engine`
        pool_size=pool_size,
        max_overflow=0,
        hide_parameters=True,  # errors are logged and kept; what tenants store is not
        connect_args={
            "statement_cache_size": statement_cache,
            "prepared_statement_cache_size": statement_cache,
            "server_settings": {"application_name": "hansei", "jit": "off"},
        },
    )
    return prepare_engine(engine, codecs=codecs)


async def _register_vector(connection: Any) -> None:
    try:
        await register_vector(connection)
    except ValueError as error:  # the driver finds no such type
        raise Misconfigured(NO_EXTENSION) from error


def prepare_engine(engine: AsyncEngine, *, codecs: bool = True) -> AsyncEngine:
    """Register the binary vector codecs on every new connection, begin and end transactions, and
    hand out no connection that is closed or still in a transaction: the driver knows, so nothing
    need be sent to find out.
    """
    listen = event.listens_for

    @listen(engine.sync_engine, "connect")
    def register_codecs(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        if codecs:
            connection.run_async(_register_vector)

    @listen(engine.sync_engine, "checkout")
    def refuse_closed(connection: Any, _record: Any, _proxy: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        driver = connection.driver_connection
        if driver.is_closed() or driver.is_in_transaction():
            raise InvalidatePoolError("This connection was closed, or left in the middle.")

    @listen(engine.sync_engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        tenant_id = connection.get_execution_options().get(TENANT)
        _tell(connection, f"BEGIN; {_binding(tenant_id)}" if tenant_id is not None else "BEGIN")

    @listen(engine.sync_engine, "commit")
    def commit(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        _tell(connection, "COMMIT")

    @listen(engine.sync_engine, "rollback")
    def roll_back(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.invalidated:  # with the connection, its transaction is gone
            return
        driver = connection.connection.driver_connection
        if driver is not None and not driver.is_closed():
            _tell(connection, "ROLLBACK")

    return engine


def _tell(connection: Connection, statement: str) -> None:
    """Send a statement as it is: unprepared, so that no tenant's text stays in a cache."""

    async def send(driver: asyncpg.Connection[Any]) -> None:
        await driver.execute(statement)

    adapted: Any = connection.connection.dbapi_connection
    adapted.run_async(send)


def _binding(tenant_id: UUID) -> str:
    """`tenant_id` must be a UUID object: its text form is safe to splice."""
    return f"SET LOCAL hansei.tenant_id = '{UUID(str(tenant_id))}'"


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

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=borrow,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
    )
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
            await session.connection(execution_options={TENANT: tenant_id})
            session.info[TENANT] = tenant_id
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


def tenant_of(session: AsyncSession) -> UUID:
    """The tenant this session is bound to; statements name it beside row-level security."""
    return session.info[TENANT]


async def raw_connection(session: AsyncSession) -> asyncpg.Connection[Any]:
    """The asyncpg connection under a session, inside its transaction: for the queue and for
    hand-written SQL.
    """
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    driver = raw.driver_connection
    assert driver is not None
    return driver
