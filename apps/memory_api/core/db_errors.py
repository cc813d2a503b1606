"""Errors of the database: which mean that it is unavailable or its disk full, and which a retry may
resolve.

A `TimeoutError` or an `OSError` says nothing about its source. So it is translated to
`DatabaseUnavailable` where the driver is called (`core.db`, the run queue), and nowhere else.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import asyncpg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from memory_api.core.errors import ConfigurationError, HanseiError, ServiceUnavailable
from memory_api.core.metrics import DISK_FULL


class DatabaseUnavailable(ServiceUnavailable):
    """The database cannot be reached. Retry in 2 seconds."""


class NoFreeConnection(DatabaseUnavailable):
    """All database connections of this process are in use. Retry in 2 seconds."""


class DatabaseLoginRefused(DatabaseUnavailable):
    """The database refuses the login. Check the user and the password of its URL."""


CONNECTION_ERRORS = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that broke while asyncpg reset it
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby: after a failover, the primary is elsewhere
    PoolTimeout,
)
"""Errors of the driver and the pool: no connection, none in time, or a server that stops or takes
no writes."""
CITUS_CHANGED = (
    "server closed the connection unexpectedly",
    "could not find valid entry for shard",
)
"""Begin the message of an InternalServerError of Citus: a node stopped, or a shard was split, while
the statement ran.
"""
LOGIN_ERRORS = (asyncpg.InvalidAuthorizationSpecificationError,)
UNDEFINED_TABLE = "42P01"
DISK_FULL_SQLSTATE = "53100"
"""A client cannot ask PostgreSQL for free disk space, so this is the only sign of a full disk."""
SCHEMA_MISSING = "This database has no tables yet. Run `hansei migrate`."

TRANSIENT_SQLSTATES = ("08", "3D", "40", "53", "55P03", "57")
"""Prefixes of SQLSTATEs that a retry can resolve: connection, missing database, deadlock or
serialization failure, resources, lock timeout, shutdown.
"""


@dataclass
class DiskState:
    """Whether a statement of this process failed because of a full disk, and no write since then
    proved that there is space again.
    """

    is_full: bool = False


DISK_STATE = DiskState()
"""A process has one database."""


def record_if_disk_full(error: BaseException) -> None:
    """Set `DISK_STATE` if a statement failed because of a full disk."""
    if sqlstate(error) == DISK_FULL_SQLSTATE:
        DISK_STATE.is_full = True
        DISK_FULL.inc()


def to_unavailable(error: BaseException) -> DatabaseUnavailable | None:
    """The error as `DatabaseUnavailable`; None if the database was reached.

    Pass only errors of calls of the driver: a `TimeoutError` or `OSError` of anything else would
    be taken for one of the database. Looks into groups and wrapped errors.
    """
    for inner in _nested(error):
        if isinstance(inner, DatabaseUnavailable):
            return inner
        if isinstance(inner, LOGIN_ERRORS):
            return DatabaseLoginRefused(
                f"The database refuses the login: {driver_message(inner)}. Check the user and the"
                " password of its URL."
            )
        if isinstance(inner, (*CONNECTION_ERRORS, OSError, TimeoutError)):
            return DatabaseUnavailable()
        if isinstance(inner, asyncpg.InternalServerError) and str(inner).startswith(CITUS_CHANGED):
            return DatabaseUnavailable()
    return None


@contextmanager
def translate_connection_errors() -> Generator[None]:
    """Raise `DatabaseUnavailable` for an error of the connection. Only around calls of the
    driver.
    """
    try:
        yield
    except Exception as error:
        unavailable = to_unavailable(error)
        if unavailable is None or unavailable is error:
            raise
        raise unavailable from error


def is_connection_error(error: BaseException) -> bool:
    """Whether the database could not be reached, by the type of the error alone."""
    if isinstance(error, DBAPIError):
        return error.connection_invalidated or (
            error.orig is not None and is_connection_error(error.orig)
        )
    return isinstance(error, (DatabaseUnavailable, *CONNECTION_ERRORS))


def is_transient(error: BaseException) -> bool:
    """Whether the state of the database caused the failure, so that a retry may succeed."""
    return is_connection_error(error) or sqlstate(error).startswith(TRANSIENT_SQLSTATES)


def sqlstate(error: BaseException | None) -> str:
    """The SQLSTATE of an error of PostgreSQL, also of one that SQLAlchemy wraps; else ''."""
    while error is not None:
        if isinstance(error, asyncpg.PostgresError):
            return str(error.sqlstate or "")
        error = error.orig if isinstance(error, DBAPIError) else error.__cause__
    return ""


def driver_message(error: BaseException) -> str:
    """Return the first line of the driver's message, without SQLAlchemy's additions."""
    while isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        error = error.__cause__
    driver_error = error.orig if isinstance(error, DBAPIError) else error
    return str(driver_error).split("\n", 1)[0] or type(driver_error).__name__


def to_public_error(error: Exception) -> ConfigurationError | ServiceUnavailable | None:
    """An error of a command that works only with the database, in one line; None for an error
    that says nothing about the database.
    """
    if isinstance(error, HanseiError) and not isinstance(error, DatabaseUnavailable):
        return None
    if sqlstate(error) == UNDEFINED_TABLE:
        return ConfigurationError(SCHEMA_MISSING)
    unavailable = to_unavailable(error)
    if isinstance(unavailable, DatabaseLoginRefused):
        return ConfigurationError(unavailable.detail)
    if unavailable is not None or is_transient(error):
        return ServiceUnavailable(f"The database is unavailable: {driver_message(error)}")
    return None


def _nested(error: BaseException | None) -> Generator[BaseException]:
    """The error and the errors in it: of a group, wrapped, or its cause."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
                yield from _nested(inner)
        error = error.orig if isinstance(error, DBAPIError) and error.orig else error.__cause__
