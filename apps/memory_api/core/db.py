"""Engine, sessions, tenant binding and the column types of all tables.

A session is one transaction. `Sessions.for_tenant(id)` opens it, binds the tenant with `SET LOCAL`
and commits on exit. Row-level security hides all rows from a session without a tenant. The tenant
is part of the statement's text, because SET takes no parameters and Citus does not pass
`set_config` on to its workers.

BEGIN and SET LOCAL go in one round trip. For this, the engine is in autocommit mode and event
handlers send BEGIN, COMMIT and ROLLBACK.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import asyncpg
from pgvector.asyncpg import register_vector
from pgvector.sqlalchemy import HALFVEC as TextHALFVEC
from sqlalchemy import Connection, DateTime, Dialect, MetaData, Text, event, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry, NullPool
from sqlalchemy.util import greenlet_spawn

from memory_api.core.after_commit import AFTER_COMMIT_KEY, NOTIFIER_KEY, Notifier, note_commit
from memory_api.core.db_errors import (
    DatabaseUnavailable,
    NoFreeConnection,
    record_if_disk_full,
    to_unavailable,
    translate_connection_errors,
)
from memory_api.core.errors import ConfigurationError, HanseiError
from memory_api.core.statement_spans import record_statements
from memory_api.core.tracing import is_tracing

TENANT_INFO_KEY = "tenant_id"
"""Key of the tenant ID in `session.info` and in the connection's execution options."""
DRIVER_KEY = "driver"
"""Key of the driver's connection in `session.info`: a session has one connection."""
INVALID_URL = (
    "A database URL in the configuration is not valid."
    " Use postgresql://USER:PASSWORD@HOST:PORT/DATABASE."
)
PGVECTOR_MISSING = (
    "The pgvector extension is missing in this database."
    " Run `create extension vector` as a superuser."
)
CONNECT_TIMEOUT_SECONDS = 10.0


class CommitRefused(HanseiError):
    """PostgreSQL rolled the transaction back instead of committing it."""


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
    """A `halfvec` column whose values go unchanged to the binary codec of the connection.

    pgvector's own type would convert them to text.
    """

    cache_ok = True

    def bind_processor(self, dialect: Dialect) -> None:
        return None


def driver_url(url: str) -> URL:
    """Convert a `postgresql://` URL to one for SQLAlchemy with asyncpg. Raises
    `ConfigurationError`.
    """
    try:
        return make_url(url).set(drivername="postgresql+asyncpg")
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        raise ConfigurationError(INVALID_URL) from error


class _Pool(AsyncAdaptedQueuePool):
    def _do_get(self) -> ConnectionPoolEntry:
        try:
            return super()._do_get()
        except PoolTimeout as error:
            raise NoFreeConnection from error


def open_engine(
    url: str,
    *,
    pool_size: int = 10,
    statement_cache: int = 100,
    codecs: bool = True,
    timeout: float | None = None,
    synchronous_commit: bool = True,
) -> AsyncEngine:
    """Create an engine. `statement_cache` is the number of prepared statements per connection.
    After `timeout` seconds, a statement raises `DatabaseUnavailable`, and the wait for a connection
    its subclass `NoFreeConnection`. Without `synchronous_commit`, transactions do not wait for the
    disk: a crash of PostgreSQL can lose the newest ones.

    Pass `codecs=False` for a database that may not have the vector extension yet.
    """
    engine = create_async_engine(
        driver_url(url),
        isolation_level="AUTOCOMMIT",  # transactions are begun and ended in `prepare_engine`
        pool_size=pool_size,
        max_overflow=0,
        poolclass=_Pool,
        pool_use_lifo=True,  # fewer connections with prepared statements, here and in PostgreSQL
        pool_timeout=timeout or 30.0,
        hide_parameters=True,  # errors are logged and stored; tenants' data must not be in them
        connect_args={
            "statement_cache_size": statement_cache,
            "prepared_statement_cache_size": statement_cache,
            "timeout": min(timeout or CONNECT_TIMEOUT_SECONDS, CONNECT_TIMEOUT_SECONDS),
            "command_timeout": timeout,
            "server_settings": {"application_name": "hansei", "jit": "off"},
        },
    )
    begin = "BEGIN" if synchronous_commit else "BEGIN; SET LOCAL synchronous_commit = off"
    return prepare_engine(engine, codecs=codecs, begin=begin)


async def _register_vector(connection: Any) -> None:
    try:
        await register_vector(connection)
    except ValueError as error:  # the driver does not find the type `vector`
        raise ConfigurationError(PGVECTOR_MISSING) from error


def prepare_engine(
    engine: AsyncEngine, *, codecs: bool = True, begin: str = "BEGIN"
) -> AsyncEngine:
    """Register the event handlers of an engine and return it. `begin` starts a transaction.

    They register the vector codecs on new connections, begin and end transactions, translate
    errors of the connection to `DatabaseUnavailable`, and replace pooled connections that are
    closed or still in a transaction. That check asks the driver and sends nothing.
    """
    listen = event.listens_for
    if is_tracing():
        record_statements(engine)
    _translate_connection_errors(engine)
    _prepare_connections(engine, codecs=codecs)

    @listen(engine.sync_engine, "begin")
    def start(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        tenant_id = connection.get_execution_options().get(TENANT_INFO_KEY)
        _execute_unprepared(
            connection,
            begin if tenant_id is None else f"{begin}; {_set_tenant_statement(tenant_id)}",
        )

    @listen(engine.sync_engine, "commit")
    def commit(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        status = _execute_unprepared(connection, "COMMIT")
        if status != "COMMIT":  # of a failed transaction, PostgreSQL answers ROLLBACK
            raise CommitRefused

    @listen(engine.sync_engine, "rollback")
    def roll_back(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        if connection.invalidated:  # the transaction ended with the connection
            return
        driver = connection.connection.driver_connection
        if driver is not None and not driver.is_closed():
            _execute_unprepared(connection, "ROLLBACK")

    return engine


def _prepare_connections(engine: AsyncEngine, *, codecs: bool) -> None:
    """Register the codecs on new connections, and reject pooled ones that are unusable."""
    listen = event.listens_for

    @listen(engine.sync_engine, "connect")
    def register_codecs(connection: Any, _record: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        if codecs:
            connection.run_async(_register_vector)

    @listen(engine.sync_engine, "checkout")
    def reject_unusable(connection: Any, _record: Any, _proxy: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        driver = connection.driver_connection
        if driver.is_closed() or driver.is_in_transaction():
            raise InvalidatePoolError("The connection is closed or still in a transaction.")


def _translate_connection_errors(engine: AsyncEngine) -> None:
    """Raise `DatabaseUnavailable` where a connection is opened or breaks, and discard it."""
    listen = event.listens_for

    @listen(engine.sync_engine, "do_connect")
    def connect(dialect: Dialect, _record: Any, arguments: Any, options: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
        with translate_connection_errors():
            return dialect.connect(*arguments, **options)

    @listen(engine.sync_engine, "handle_error", retval=True)
    def translate(context: ExceptionContext) -> BaseException | None:  # pyright: ignore[reportUnusedFunction]
        record_if_disk_full(context.original_exception)
        unavailable = to_unavailable(context.original_exception)
        if unavailable is not None:
            context.is_disconnect = True  # the connection is not used again
            context.invalidate_pool_on_disconnect = False
        return unavailable


def _execute_unprepared(connection: Connection, statement: str) -> str:
    """Execute without preparing, so that a statement with a tenant ID does not fill the cache.
    Returns PostgreSQL's command tag. A cancelled BEGIN may still take effect, so its connection is
    closed: in the pool, it would hold a connection of a transaction pooler.
    """

    async def send(driver: asyncpg.Connection[Any]) -> str:
        return await driver.execute(statement)

    adapted: Any = connection.connection.dbapi_connection
    try:
        with translate_connection_errors():
            return adapted.run_async(send)
    except (DatabaseUnavailable, asyncio.CancelledError) as error:
        connection.invalidate(error)
        raise


def _set_tenant_statement(tenant_id: UUID) -> str:
    # The round trip through UUID makes it safe to put the value into the statement's text.
    return f"SET LOCAL hansei.tenant_id = '{UUID(str(tenant_id))}'"


class _PooledConnection:
    """A connection of an external pool. Closing it releases it to the pool."""

    def __init__(self, pool: asyncpg.Pool, connection: Any) -> None:
        self._pool = pool
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's signature
        await self._pool.release(self._connection, timeout=timeout)

    def terminate(self) -> None:
        self._connection.terminate()


def engine_from_pool(pool: asyncpg.Pool) -> AsyncEngine:
    """Create an engine on an asyncpg pool. The caller owns and closes the pool."""

    async def acquire() -> Any:
        return _PooledConnection(pool, await pool.acquire())

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=acquire,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
    )
    return prepare_engine(engine)


class Sessions:
    """Opens transactions. Owns the engines: `listener` has the connection that listens, so that
    it never waits for one of `engine`.
    """

    def __init__(self, engine: AsyncEngine, listener: AsyncEngine | None = None) -> None:
        self.engine = engine
        self._listener = listener or engine
        self.notifier = Notifier(self)
        self.before_commit: Callable[[AsyncSession], Awaitable[None]] | None = None
        """Called at the end of each transaction of a tenant, inside it."""

    @asynccontextmanager
    async def for_tenant(self, tenant_id: UUID) -> AsyncGenerator[AsyncSession]:
        """Open a transaction that reads and writes only this tenant's rows. Commits on exit and
        rolls back on an error.
        """
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            await session.connection(execution_options={TENANT_INFO_KEY: tenant_id})
            session.info[TENANT_INFO_KEY] = tenant_id
            session.info[NOTIFIER_KEY] = self.notifier
            yield session
            if self.before_commit is not None:
                await self.before_commit(session)
            note_commit()
        for callback in session.info.get(AFTER_COMMIT_KEY, ()):
            callback()

    @asynccontextmanager
    async def without_tenant(self) -> AsyncGenerator[AsyncSession]:
        """Open a transaction without a tenant. It can read the queue but no tenant's rows."""
        async with AsyncSession(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    def raw_connection(self) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]:
        """Open the driver's connection outside a transaction and without a tenant: for statements
        that bind their tenant themselves (`hansei_search`). Others would see no rows.
        """
        return self._driver_connection(self.engine)

    def listening_connection(self) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]:
        """Open the driver's connection for LISTEN and `tenant_transaction`."""
        return self._driver_connection(self._listener)

    @staticmethod
    @asynccontextmanager
    async def _driver_connection(engine: AsyncEngine) -> AsyncGenerator[asyncpg.Connection[Any]]:
        connection = await engine.raw_connection()
        driver = connection.driver_connection
        assert driver is not None
        try:
            with translate_connection_errors():
                yield driver
        except (DatabaseUnavailable, asyncio.CancelledError) as error:
            await greenlet_spawn(connection.invalidate, error)
            raise
        finally:
            await greenlet_spawn(connection.close)

    async def close(self) -> None:
        await self.notifier.close()
        await self.engine.dispose()
        await self._listener.dispose()


@asynccontextmanager
async def tenant_transaction(
    driver: asyncpg.Connection[Any], tenant_id: UUID, mode: str = "READ ONLY"
) -> AsyncGenerator[None]:
    """A transaction on a driver's connection that sees only this tenant's rows."""
    await driver.execute(f"BEGIN {mode}; {_set_tenant_statement(tenant_id)}")
    try:
        yield
    except BaseException:
        if not driver.is_closed():
            await driver.execute("ROLLBACK")
        raise
    if await driver.execute("COMMIT") != "COMMIT":
        raise CommitRefused


def current_tenant_id(session: AsyncSession) -> UUID:
    """The session's tenant. Statements filter by it in addition to row-level security."""
    return session.info[TENANT_INFO_KEY]


async def asyncpg_connection(session: AsyncSession) -> asyncpg.Connection[Any]:
    """The session's asyncpg connection, inside its transaction, for hand-written SQL. In a nested
    transaction the session is asked again: only then it sends the SAVEPOINT.
    """
    driver: asyncpg.Connection[Any] | None = session.info.get(DRIVER_KEY)
    if driver is None or session.in_nested_transaction():
        raw = await (await session.connection()).get_raw_connection()
        driver = session.info[DRIVER_KEY] = raw.driver_connection
    assert driver is not None
    return driver


TenantId = Annotated[UUID, mapped_column(primary_key=True)]
Id = Annotated[UUID, mapped_column(primary_key=True)]
Str = Annotated[str, mapped_column(Text)]
OptStr = Annotated[str | None, mapped_column(Text)]
StrList = Annotated[list[str], mapped_column(ARRAY(Text), server_default=text("'{}'"))]
Json = Annotated[dict[str, Any], mapped_column(JSONB, server_default=text("'{}'"))]
OptJson = Annotated[Any, mapped_column(JSONB(none_as_null=True), nullable=True)]
Now = Annotated[datetime, mapped_column(DateTime(timezone=True), server_default=text("now()"))]
OptTime = Annotated[datetime | None, mapped_column(DateTime(timezone=True))]


async def transaction_time(session: AsyncSession) -> datetime:
    """The start time of the transaction, by the database's clock."""
    return (await session.execute(select(func.now()))).scalar_one()
