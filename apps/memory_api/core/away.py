"""Is the database away, so that trying again later may help? And what a person is told of it."""

from __future__ import annotations

import socket
from typing import cast

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from apps.memory_api.core.errors import Misconfigured, Unavailable

AWAY = (
    ConnectionError,
    TimeoutError,
    FileNotFoundError,  # the unix socket of a server that is down
    socket.gaierror,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that broke while it was put in order
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    OperationalError,
    InterfaceError,
    PoolTimeout,
)

OF_THE_DATABASE = (
    ConnectionError,
    TimeoutError,
    socket.gaierror,
    asyncpg.PostgresError,
    DBAPIError,
)
"""What comes from a database and from nothing else: unlike in AWAY, no file that is missing."""
UNDEFINED_TABLE = "42P01"
NO_TABLES = "this database has no tables yet: `hansei migrate` makes them"

PASSING = ("08", "28", "3D", "40", "53", "55P03", "57")
"""SQLSTATEs that are nobody's fault and may pass: connection, login, missing database, deadlock or
serialisation, resources, lock timeout, shutdown.
"""


def may_pass(error: BaseException) -> bool:
    """Whether the database, and not what was asked of it, is why this failed."""
    return is_away(error) or sqlstate(error).startswith(PASSING)


def sqlstate(error: BaseException | None) -> str:
    """The SQLSTATE of the PostgreSQL error under an error, or nothing."""
    while error is not None:
        if isinstance(error, asyncpg.PostgresError):
            return str(error.sqlstate or "")
        error = error.orig if isinstance(error, DBAPIError) else error.__cause__
    return ""


def reason(error: BaseException) -> str:
    """What the database said, in one line, without what SQLAlchemy says around it."""
    said = error.orig if isinstance(error, DBAPIError) else error
    return str(said).split("\n", 1)[0] or type(said).__name__


def in_words(error: Exception) -> Misconfigured | Unavailable | None:
    """What a person is told in an error's place, when the database cannot be used; None when it is
    another failure.
    """
    if not isinstance(error, OF_THE_DATABASE):
        return None
    if sqlstate(error) == UNDEFINED_TABLE:
        return Misconfigured(NO_TABLES)
    if may_pass(error):
        return Unavailable(f"the database cannot be used: {reason(error)}")
    return None


def is_away(error: BaseException | None) -> bool:
    """No connection, none in time, or a server that starts or stops. Looks through wrappers."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, AWAY):
            return True
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return True
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return any(is_away(inner) for inner in group.exceptions)
        error = error.__cause__ or error.__context__
    return False
