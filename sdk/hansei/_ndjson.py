"""Reads traces from a file or an iterable as numbered NDJSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

from hansei._file_limit import limited_lines, read_source
from hansei._request import drop_none, encode_json
from hansei.errors import BadRequestError

Source = str | PathLike[str] | BinaryIO | Iterable[Mapping[str, Any]]
"""A path, an open binary file, or traces. A file holds one trace, a JSON list, or one per line."""

MAX_BATCH_LINES = 100
MAX_BATCH_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
"""The limit of the service for one line."""

RECORD_FIELDS = ("data", "traces", "runs", "items", "results")
"""Fields of an export that hold its records."""
RECORD_KEYS = (
    "events", "messages", "input", "resourceSpans", "traj", "trajectory", "observations",
    "traceId", "run_type", "type",
)  # fmt: skip
"""Fields of one record. An object with one of them is no list of records."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Line:
    """One trace. `number` is its line in an NDJSON file, otherwise its position, from 1.

    If `error` is set, the client rejects the trace without sending it.
    """

    number: int
    text: bytes
    error: dict[str, Any] | None = None


def read_lines(
    source: Source, overrides: Mapping[str, Any], *, is_export: bool = False
) -> Iterator[Line]:
    """The traces of `source`. Each gets the fields of `overrides` that are not None.

    The records of an export may be in a field, such as `data`, and those of Langfuse may be
    observations. Raises `BadRequestError` if a file is not JSON and `OSError` if it cannot be read.
    """
    changes = drop_none(overrides)
    items = _numbered_items(source)
    for number, item in _export_records(items) if is_export else items:
        text = _with_changes(item, changes) if changes else item
        text = text if isinstance(text, bytes) else encode_json(text)
        error = None
        if len(text) > MAX_LINE_BYTES:
            detail = f"The trace exceeds {MAX_LINE_BYTES // 2**20} MiB."
            error = {"code": "too_large", "detail": detail}
        yield Line(number, text, error)


def batch_lines(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Batches of at most 100 lines and 4 MiB. A longer line is a batch of its own."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= MAX_BATCH_LINES or size + len(line.text) > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line.text)
    if batch:
        yield batch


_Item = bytes | Mapping[str, Any]


def _numbered_items(source: Source) -> Iterator[tuple[int, _Item]]:
    if isinstance(source, (str, PathLike)):
        with Path(source).open("rb") as file:
            yield from _file_items(file)
    elif hasattr(source, "readline"):
        yield from _file_items(cast(BinaryIO, source))
    else:
        yield from enumerate(cast("Iterable[Mapping[str, Any]]", source), start=1)


def _file_items(file: BinaryIO) -> Iterator[tuple[int, _Item]]:
    """NDJSON is streamed. Only a JSON document of several lines is read as a whole."""
    lines = enumerate(limited_lines(file), start=1)
    number, first = next(((n, line) for n, line in lines if line.strip()), (0, b""))
    first = first.removeprefix(_BOM)
    if not first.strip():
        return
    if _parse_json(first) is None or first.lstrip().startswith(b"["):
        rest = BytesIO(read_source(file, "The JSON document")).readlines()
        document = _parse_json(b"".join([first, *rest]))
        if document is not None:
            yield from enumerate(_as_list(document), start=1)
            return
        if not _looks_like_ndjson(rest):
            raise BadRequestError(_parse_error(b"".join([first, *rest])), code="malformed_json")
        lines = enumerate(rest, start=number + 1)
    for position, line in chain([(number, first)], lines):
        if line.strip():
            yield position, line.rstrip(b"\r\n")


def _export_records(items: Iterable[tuple[int, _Item]]) -> Iterator[tuple[int, _Item]]:
    """The records of an export, also from its field. Observations are joined to traces, which come
    last; the service does the same with a JSON document.
    """
    traces: dict[str, tuple[int, dict[str, Any]]] = {}
    for number, item in _records_in_fields(items):
        fields = _observation(item)
        if fields is None:
            yield number, item
            continue
        trace_id = str(fields["traceId"])
        _, trace = traces.setdefault(trace_id, (number, {"id": trace_id, "observations": []}))
        trace["observations"].append(fields)
        trace.setdefault("sessionId", fields.get("sessionId"))
        trace.setdefault("name", fields.get("traceName"))
        if fields.get("isRootObservation") or not fields.get("parentObservationId"):
            trace |= {name: fields.get(name) for name in ("input", "output")}
    yield from traces.values()


def _records_in_fields(items: Iterable[tuple[int, _Item]]) -> Iterator[tuple[int, _Item]]:
    """Numbers are positions in the field of a document of several lines, otherwise lines."""
    for number, item in items:
        value = _parse_json(item) if isinstance(item, bytes) else item
        records = _field_records(value)
        if records is None:
            yield number, item
        elif isinstance(item, bytes):
            yield from ((number, record) for record in records)
        else:
            yield from enumerate(records, start=number)


def _field_records(value: Any) -> list[Any] | None:
    if not isinstance(value, Mapping) or any(name in value for name in RECORD_KEYS):
        return None
    fields = cast("Mapping[str, Any]", value)
    lists = (fields[name] for name in RECORD_FIELDS if isinstance(fields.get(name), list))
    return next(lists, None)


def _observation(item: Any) -> dict[str, Any] | None:
    """The fields of an observation of Langfuse."""
    value = _parse_json(item) if isinstance(item, bytes) else item
    if not isinstance(value, Mapping) or "observations" in value:
        return None
    fields = cast("Mapping[str, Any]", value)
    return dict(fields) if "traceId" in fields and "type" in fields else None


def _as_list(document: Any) -> list[Any]:
    return cast("list[Any]", document) if isinstance(document, list) else [document]


def _looks_like_ndjson(lines: Iterable[bytes]) -> bool:
    """If so, the service rejects a malformed line by its number."""
    return any(line.startswith(b"{") for line in lines)


def _parse_json(text: bytes) -> Any:
    """The value, or None if the text is not JSON. `null` is not a trace."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _parse_error(text: bytes) -> str:
    try:
        json.loads(text)
    except UnicodeDecodeError:
        return "The file is not UTF-8."
    except RecursionError:
        return "The JSON of the file is nested too deeply."
    except ValueError as error:
        return f"The file is not JSON: {error}."
    return "The file contains no trace."


def _with_changes(item: _Item, changes: Mapping[str, Any]) -> _Item:
    """Anything that is not a JSON object is unchanged. The service rejects it."""
    value = _parse_json(item) if isinstance(item, bytes) else item
    return {**value, **changes} if isinstance(value, Mapping) else item
