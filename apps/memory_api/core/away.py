"""Is the database away, so that trying again later may help?"""

from __future__ import annotations

import socket
from typing import cast

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

AWAY = (
    ConnectionError,
    TimeoutError,
    FileNotFoundError,  # the unix socket of a server that is down
    socket.gaierror,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    OperationalError,
    InterfaceError,
    PoolTimeout,
)


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
