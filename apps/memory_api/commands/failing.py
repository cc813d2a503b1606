"""A command that fails says so in one line: status 1, or 2 when its options or its configuration
are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer
from pydantic import ValidationError

from apps.memory_api.core.errors import HanseiError, Misconfigured


class Failed(Exception):
    """What went wrong, and what to do about it."""


class WrongUsage(Exception):
    """The options do not go together, and which would."""


@contextmanager
def one_line() -> Generator[None]:
    """Turn an expected failure into a line on standard error and an exit status."""
    try:
        yield
    except Exception as error:
        told = _told(error)
        if told is None:
            raise
        _leave(*told)


def _told(error: Exception) -> tuple[str, int] | None:
    """The line and the status, of a failure that was foreseen."""
    match error:
        case Failed() | HanseiError():
            return str(error), 1
        case Misconfigured() | WrongUsage():
            return str(error), 2
        case ValidationError():
            wrong = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            return f"configuration: {'; '.join(wrong)}", 2
        case _:
            # SQLAlchemy, without which `hansei up` starts
            from apps.memory_api.core.away import in_words  # noqa: PLC0415

            said = in_words(error)
            return _told(said) if said is not None else None


def _leave(message: str, status: int) -> None:
    typer.echo(f"hansei: {message}", err=True)
    sys.exit(status)
