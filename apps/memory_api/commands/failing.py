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

from apps.memory_api.core.errors import HanseiError, Misconfigured

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
    except Exception as error:
        told = _of_the_database(error)
        if told is None:
            raise
        _leave(*told)


def _of_the_database(error: Exception) -> tuple[str, int] | None:
    """What to say, where it is the database that cannot be used."""
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415 - `hansei up` starts without SQLAlchemy

    from apps.memory_api.core.away import may_pass, reason, sqlstate  # noqa: PLC0415
    from apps.memory_api.core.db import NO_TABLES  # noqa: PLC0415

    theirs = (ConnectionError, TimeoutError, socket.gaierror, asyncpg.PostgresError, DBAPIError)
    if not isinstance(error, theirs):
        return None
    if sqlstate(error) == UNDEFINED_TABLE:
        return NO_TABLES, 2
    if may_pass(error):
        return f"the database cannot be used: {reason(error)}", 1
    return None


def _leave(message: str, status: int) -> None:
    typer.echo(f"hansei: {message}", err=True)
    sys.exit(status)
