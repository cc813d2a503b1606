"""A command that fails says so in one line and exits with 1."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

import typer


class Failed(Exception):
    """What went wrong, and what to do about it."""


@contextmanager
def one_line() -> Generator[None]:
    """Turn `Failed` into a line on standard error and exit status 1."""
    try:
        yield
    except Failed as error:
        typer.echo(f"hansei: {error}", err=True)
        sys.exit(1)
