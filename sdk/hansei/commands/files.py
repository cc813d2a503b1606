"""A file that a command reads, or standard input as `-`.

An argument of type `Path` would not do: typer checks it, and does not know `-` again as no file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

import typer

STDIN = "-"
HEAD = 64 * 1024
"""Bytes of a file that can be looked at before it is read."""


def readable_file(name: str) -> str:
    """The callback of such an argument. Raises `BadParameter`."""
    if name != STDIN:
        if Path(name).is_dir():
            raise typer.BadParameter(f"{name} is a folder.")
        if not os.access(name, os.R_OK):
            raise typer.BadParameter(f"{name} does not exist, or may not be read.")
    return name


@contextmanager
def opened(name: str) -> Generator[BufferedReader[Any]]:
    if name != STDIN:
        with BufferedReader(FileIO(name), HEAD) as file:
            yield file
        return
    source = BufferedReader(sys.stdin.buffer, HEAD)  # pyright: ignore[reportArgumentType]
    try:
        yield source
    finally:
        source.detach()  # standard input is not ours to close
