"""Reading traces from wherever they are, as numbered lines of NDJSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from hansei.errors import BadRequest
from hansei.request import encode, given

Source = str | PathLike[str] | BinaryIO | Iterable[Mapping[str, Any]]
"""A path, an open binary file, or traces. Files hold one trace, a list of traces, or one a line."""

BATCH_LINES = 100
BATCH_BYTES = 4 * 1024 * 1024
MAX_LINE = 16 * 1024 * 1024
"""Bytes the service takes in one line."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Line:
    """One trace. `number` is its line in a file of lines, else its place in the list, from 1.
    `refusal` is there when it need not be sent to be refused.
    """

    number: int
    text: bytes
    refusal: dict[str, Any] | None = None


def read_lines(source: Source, overrides: Mapping[str, Any]) -> Iterator[Line]:
    """The traces of `source`, with the fields of `overrides` that are not None set in each.

    Raises `BadRequest` when a file is not JSON at all, `OSError` when it cannot be read.
    """
    changes = given(overrides)
    for number, item in _numbered(source):
        text = _changed(item, changes) if changes else item
        text = text if isinstance(text, bytes) else encode(text)
        refusal = None
        if len(text) > MAX_LINE:
            limit = f"A line of NDJSON may have {MAX_LINE // 2**20} MiB."
            refusal = {"code": "too_large", "detail": limit}
        yield Line(number, text, refusal)


def batches(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Up to a hundred lines or four megabytes at a time; a longer line goes alone."""
    held: list[Line] = []
    size = 0
    for line in lines:
        if held and (len(held) >= BATCH_LINES or size + len(line.text) > BATCH_BYTES):
            yield held
            held, size = [], 0
        held.append(line)
        size += len(line.text)
    if held:
        yield held


_Item = bytes | Mapping[str, Any]


def _numbered(source: Source) -> Iterator[tuple[int, _Item]]:
    if isinstance(source, (str, PathLike)):
        with Path(source).open("rb") as file:
            yield from _in_file(file)
    elif hasattr(source, "readline"):
        yield from _in_file(cast(BinaryIO, source))
    else:
        yield from enumerate(cast("Iterable[Mapping[str, Any]]", source), start=1)


def _in_file(file: BinaryIO) -> Iterator[tuple[int, _Item]]:
    """One trace a line is read as it comes. Only a document of several lines is read as a whole."""
    lines = enumerate(file, start=1)
    number, first = next(((n, line) for n, line in lines if line.strip()), (0, b""))
    first = first.removeprefix(_BOM)
    if not first.strip():
        return
    if _parse(first) is None or first.lstrip().startswith(b"["):
        rest = [line for _, line in lines]
        whole = _parse(b"".join([first, *rest]))
        if whole is not None:
            yield from enumerate(_traces(whole), start=1)
            return
        if not _starts_another(rest):
            raise BadRequest(_complaint(b"".join([first, *rest])), code="malformed_json")
        lines = enumerate(rest, start=number + 1)
    for place, line in chain([(number, first)], lines):
        if line.strip():
            yield place, line.rstrip(b"\r\n")


def _traces(document: Any) -> list[Any]:
    return cast("list[Any]", document) if isinstance(document, list) else [document]


def _starts_another(lines: Iterable[bytes]) -> bool:
    """Whether these are lines of their own: then a bad one among them is refused by its number."""
    return any(line.startswith(b"{") for line in lines)


def _parse(text: bytes) -> Any:
    """The JSON value, None when it is not JSON (or is null, which no trace is)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _complaint(text: bytes) -> str:
    try:
        json.loads(text)
    except UnicodeDecodeError:
        return "The file is not UTF-8."
    except RecursionError:
        return "The file is nested too deep."
    except ValueError as error:
        return f"The file is not JSON: {error}."
    return "The file holds no trace."


def _changed(item: _Item, changes: Mapping[str, Any]) -> _Item:
    """`item` with `changes`; what is no JSON object stays as it is, for the service to refuse."""
    value = _parse(item) if isinstance(item, bytes) else item
    return {**value, **changes} if isinstance(value, Mapping) else item
