"""A command that fails says so in one line: status 1, or 2 when its options or its configuration
are wrong.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager

import asyncpg
import typer
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError

from apps.memory_api.core.away import may_pass, reason, sqlstate
from apps.memory_api.core.db import NO_TABLES
from apps.memory_api.core.errors import HanseiError, Misconfigured

OF_THE_DATABASE = (
    ConnectionError,
    socket.gaierror,
    TimeoutError,
    asyncpg.PostgresError,
    DBAPIError,
)
UNDEFINED_TABLE = "42P01"


class Failed(Exception):
    """What went wrong, and what to do about it."""


class WrongUsage(Exception):
    """The options do not go together, and which would."""


@contextmanager
def one_line() -> Generator[None]:
    """Turn an expected failure into a line on standard error and an exit status."""
    try:
        yield
    except (Failed, HanseiError) as error:
        _leave(str(error), 1)
    except (Misconfigured, WrongUsage) as error:
        _leave(str(error), 2)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        _leave(f"configuration: {'; '.join(wrong)}", 2)
    except OF_THE_DATABASE as error:
        if sqlstate(error) == UNDEFINED_TABLE:
            _leave(NO_TABLES, 2)
        if not may_pass(error):
            raise
        _leave(f"the database cannot be used: {reason(error)}", 1)


def _leave(message: str, status: int) -> None:
    typer.echo(f"hansei: {message}", err=True)
    sys.exit(status)
