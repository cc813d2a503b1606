"""Reads files of other people: one that is too large is refused before it fills the memory."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import IO

from hansei.errors import BadRequestError

MEBIBYTE = 1024 * 1024
MAX_FILE_BYTES = 256 * MEBIBYTE
"""The most that is read as a whole: a session, a document of traces, or a line of either."""
MAX_DOCUMENT_BYTES = 50 * MEBIBYTE
"""The limit of the service for a document of a collection."""
MAX_PLAYBOOK_BYTES = 32 * MEBIBYTE
"""The limit of the service for a playbook."""
MAX_SETTINGS_BYTES = MEBIBYTE


def read_file(path: str | PathLike[str], limit: int = MAX_FILE_BYTES) -> bytes:
    """Raises `BadRequestError` if the file is larger, and `OSError` if it cannot be read."""
    with Path(path).open("rb") as file:
        return read_source(file, str(path), limit)


def read_source(source: IO[bytes], name: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """The rest of an open file. Raises `BadRequestError` if it is larger."""
    parts: list[bytes] = []
    size = 0
    while part := source.read(MEBIBYTE):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise BadRequestError(f"{name} is larger than {limit // MEBIBYTE} MiB. Split it.")
    return b"".join(parts)


def limited_lines(source: IO[bytes], limit: int = MAX_FILE_BYTES) -> Iterator[bytes]:
    """The lines of an open file. Raises `BadRequestError` if one of them is larger."""
    while line := source.readline(limit + 1):
        if len(line) > limit:
            raise BadRequestError(f"A line of the file is larger than {limit // MEBIBYTE} MiB.")
        yield line
