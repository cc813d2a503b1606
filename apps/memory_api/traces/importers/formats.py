"""The formats of `POST /api/v1/traces?format=…`: which one a record has, and its traces. Pure.

A record is one line of NDJSON, or one item of a JSON list. Session files are one record as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import to_json

from memory_api.core.errors import (
    HanseiError,
    InvalidRequest,
    PayloadTooLarge,
    field_problem,
)
from memory_api.core.json_input import (
    JSON_LIMITS,
    MAX_VALUES,
    have_too_many_values,
    may_have_too_many_values,
    parse_json,
)
from memory_api.traces.importers import agent_logs, exports
from memory_api.traces.importers.agent_logs import Fields, Record
from memory_api.traces.importers.export_scores import find_subject, score_outcome
from memory_api.traces.ndjson import MAX_BATCH_LINES, MAX_LINE_BYTES, Line, read_batches
from memory_api.traces.schemas import TraceFormat
from memory_api.traces.storage import content_external_id

MAX_SESSION_BYTES = 64 * 1024 * 1024
MAX_SESSION_LINES = 100_000
PART_FACTOR = 1_000_000_000
"""The number of the n-th trace of a record is its line plus n times this number."""
ConvertedLine = tuple[int, bytes | HanseiError | None]
"""(number, a trace as JSON, or why the record has none)."""
_SHARED = (
    *("playbook", "dataset", "project_id", "project", "task_key", "external_id", "language"),
    "outcome",
)
"""Fields of a trace that a record of any format may have."""
_OF_SESSIONS = ("playbook", "project_id")
"""Fields of a trace that the first line of a session file may have."""
_RECORD_CONVERTERS: Mapping[str, Callable[[Record], Fields]] = {
    "hansei": dict,
    "openai": agent_logs.from_messages,
    "anthropic": agent_logs.from_messages,
    "openai-responses": agent_logs.from_responses,
    "tau-bench": agent_logs.from_tau_bench,
    "swe-agent": agent_logs.from_swe_agent,
    "langfuse": exports.from_langfuse,
    "langsmith": exports.from_langsmith,
}
SESSION_CONVERTERS: Mapping[str, Callable[[Sequence[Any]], Fields]] = {
    "claude-code": agent_logs.from_claude_code,
    "codex": agent_logs.from_codex,
}
_WITH_JSON_TEXTS = ("langfuse", "langsmith")
_DOCUMENT_FIELDS = ("data", "traces", "runs", "items", "results")
"""Fields of an export that hold its records."""


def detect_format(record: Record) -> str | None:
    """The format of a record by its fields; None if it is unknown."""
    if "resourceSpans" in record or "resource_spans" in record:
        return "otel"
    if "traj" in record:
        return "tau-bench"
    if "trajectory" in record:
        return "swe-agent"
    if "observations" in record:
        return "langfuse"
    if "run_type" in record:
        return "langsmith"
    if "events" in record:
        return "hansei"
    if "messages" in record:
        return "openai"
    return "openai-responses" if "output" in record and "input" in record else None


def convert_lines(
    lines: Sequence[Line], name: TraceFormat, outcome_from: str | None = None
) -> list[ConvertedLine]:
    """The traces of these records, and an error for each record that cannot be converted."""
    converted: list[ConvertedLine] = []
    for number, raw in lines:
        try:
            if raw is None:
                raise PayloadTooLarge(f"A record can have at most {MAX_LINE_BYTES} bytes.")
            traces = convert_record(parse_json(raw).value, name, outcome_from)
            numbers = (number + part * PART_FACTOR for part in range(len(traces)))
            converted += zip(numbers, map(to_json, traces), strict=True)
        except HanseiError as error:
            converted.append((number, error))
        except ValidationError as error:
            problem = field_problem(error.errors()[0])
            detail = f"The record is not in the format `{name}`: {problem}"
            converted.append((number, InvalidRequest(detail)))
    return converted


def convert_record(value: Any, name: TraceFormat, outcome_from: str | None = None) -> list[Fields]:
    """The traces of one record. Raises `InvalidRequest`.

    Args:
        outcome_from: The name of the score that is the outcome, where a record has it.
    """
    if not isinstance(value, Mapping):
        raise InvalidRequest("A record must be a JSON object.")
    record = cast(Record, value)
    kind = detect_format(record) if name == "auto" else name
    if kind is None:
        raise InvalidRequest("The format of this record is unknown. State it with `format`.")
    if kind == "hansei" and "events" not in record and (likely := detect_format(record)):
        raise InvalidRequest(
            f"The record has no `events`. It looks like the format `{likely}`: send it with"
            f" `format={likely}`.",
            field="events",
        )
    shared = {name: record[name] for name in _SHARED if name in record}
    if outcome_from is not None and (outcome := score_outcome(record, outcome_from)) is not None:
        shared["outcome"] = outcome
    if kind == "hansei":
        return [{**record, **shared}]
    if kind == "otel":
        return [{**fields, **shared} for fields in exports.from_otel(record)]
    if kind in _WITH_JSON_TEXTS and may_have_too_many_values([to_json(record).decode()]):
        raise PayloadTooLarge(
            f"A record of {kind} can have at most {MAX_VALUES:,} values, with those in its texts."
        )
    fields = _RECORD_CONVERTERS[kind](record)
    return [_complete(kind, record, fields, shared)]


def convert_session(lines: Sequence[Line], name: TraceFormat) -> list[ConvertedLine]:
    """The trace of a session file, after the errors of its damaged lines. Raises `PayloadTooLarge`
    for too many values.
    """
    if have_too_many_values([raw for _, raw in lines if raw is not None]):
        raise PayloadTooLarge(f"A session file can have at most {JSON_LIMITS}.")
    entries: list[Any] = []
    converted: list[ConvertedLine] = []
    for number, raw in lines:
        try:
            if raw is None:
                raise PayloadTooLarge(f"A line can have at most {MAX_LINE_BYTES} bytes.")
            entries.append(parse_json(raw).value)
        except HanseiError as error:
            converted.append((number, error))
    if entries:
        first: Record = cast(Record, entries[0]) if isinstance(entries[0], Mapping) else {}
        shared: Fields = {each: first[each] for each in _OF_SESSIONS if each in first}
        fields = SESSION_CONVERTERS[name](entries)
        key = {"session": fields.get("session_id"), "events": fields["events"]}
        converted.append((PART_FACTOR + 1, to_json(_complete(name, key, fields, shared))))
    return converted


def document_records(value: Any) -> list[Any]:
    """The records of a JSON document: the items of a list, also in a field of an export."""
    if isinstance(value, list):
        return exports.group_observations(cast("list[Any]", value))
    if isinstance(value, Mapping) and detect_format(cast(Record, value)) is None:
        fields = cast(Record, value)
        for name in _DOCUMENT_FIELDS:
            if isinstance(items := fields.get(name), list):
                return exports.group_observations(cast("list[Any]", items))
    return [value]


def _complete(kind: str, record: Record, fields: Fields, shared: Fields) -> Fields:
    """The fields that are known, and an external ID, so that the record is stored once."""
    known = {name: value for name, value in fields.items() if value is not None}
    known.setdefault("external_id", content_external_id(kind, record))
    stated: Fields = known.get("metadata", {})
    metadata = {name: value for name, value in stated.items() if value is not None}
    if subject := find_subject(record):
        metadata["subject"] = subject
    return {**known, **shared, "metadata": {"source": kind, **metadata}}


async def read_records(
    body: AsyncIterable[bytes], name: TraceFormat, outcome_from: str | None = None
) -> AsyncIterator[list[ConvertedLine]]:
    """The records of an NDJSON body of any length, converted in batches. A session file is read as
    a whole.
    """
    batches = read_batches(body)
    if name in SESSION_CONVERTERS:
        lines: list[Line] = []
        size = 0
        async for batch in batches:
            lines += batch
            size += sum(len(raw or b"") for _, raw in batch)
            if size > MAX_SESSION_BYTES or len(lines) > MAX_SESSION_LINES:
                raise PayloadTooLarge(
                    f"A session file can have at most {MAX_SESSION_BYTES:,} bytes and"
                    f" {MAX_SESSION_LINES:,} lines."
                )
        yield await asyncio.to_thread(convert_session, lines, name)
        return
    async for batch in batches:
        yield await asyncio.to_thread(convert_lines, batch, name, outcome_from)


async def document_batches(
    raw: bytes, name: TraceFormat, outcome_from: str | None = None
) -> AsyncIterator[list[ConvertedLine]]:
    """The records of a JSON document, converted in batches. Raises `MalformedJson`."""
    items = document_records((await asyncio.to_thread(parse_json, raw)).value)
    for first in range(0, len(items), MAX_BATCH_LINES):
        part = items[first : first + MAX_BATCH_LINES]
        lines = [(first + place + 1, to_json(item)) for place, item in enumerate(part)]
        if name in SESSION_CONVERTERS:
            yield convert_session([(n, to_json(item)) for n, item in enumerate(items, 1)], name)
            return
        yield await asyncio.to_thread(convert_lines, lines, name, outcome_from)
