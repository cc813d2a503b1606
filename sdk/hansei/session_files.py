"""Reads session files of coding agents: JSON lines (Claude Code) or one document with messages.

A line that is damaged or half-written is skipped and reported. Images and the fields that the
service does not read are left out.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from hansei._file_limit import MAX_FILE_BYTES, limited_lines
from hansei._model import Json
from hansei._ndjson import RECORD_FIELDS
from hansei.errors import BadRequestError
from hansei.models import TraceFormat

MESSAGE_FIELDS = ("messages", "loglines")
"""The field of a document that holds its messages."""
MAX_SESSION_ID_LENGTH = 128
MAX_NAMED_FIELDS = 8
MAX_DEPTH = 64
"""Levels of an entry, as in a request of the service."""
MAX_UNDECIDED_BYTES = 64 * 1024 * 1024
"""A file that is still undecided after this many bytes is read as traces."""

_BOM = b"\xef\xbb\xbf"
# Quotes inside a JSON string are escaped, so these patterns only match keys.
_SIGNATURE = re.compile(
    rb'"(events)"\s*:|"message"\s*:\s*\{|"(?:messages|loglines)"\s*:\s*\[|"role"\s*:\s*"\w+"'
)
_FORMAT_KEYS: Mapping[TraceFormat, re.Pattern[bytes]] = {
    "otel": re.compile(rb'"resourceSpans"\s*:\s*\['),
    "tau-bench": re.compile(rb'"traj"\s*:\s*\['),
    "swe-agent": re.compile(rb'"trajectory"\s*:\s*\['),
    "langfuse": re.compile(rb'"observations"\s*:\s*\['),
    "langsmith": re.compile(rb'"run_type"\s*:\s*"'),
    "codex": re.compile(rb'"type"\s*:\s*"(?:session_meta|response_item)"'),
}
_RECORD_KEYS: Mapping[str, TraceFormat] = {
    "resourceSpans": "otel", "traj": "tau-bench", "trajectory": "swe-agent",
    "observations": "langfuse", "isRootObservation": "langfuse", "traceId": "langfuse",
    "run_type": "langsmith",
}  # fmt: skip
_DOCUMENT_STARTS = (b"{", b"[", b"[{")
"""The first line of a JSON document of several lines."""
_ENTRY_FIELDS = (
    "type", "message", "uuid", "parentUuid", "sessionId", "timestamp", "agentId", "isSidechain",
    "isMeta", "isCompactSummary", "isVisibleInTranscriptOnly", "isApiErrorMessage",
)  # fmt: skip
"""The fields of a line that the service reads. Others repeat the message, or hold whole files."""
_MEDIA_TYPES = (
    *("image", "image_url", "input_image", "document", "file", "input_file"),
    *("audio", "input_audio"),
)
"""A tuple: the type of a damaged block may be a list."""


@dataclass(frozen=True)
class SkippedLine:
    """A line that cannot be read. `number` is from 1."""

    number: int
    reason: str


@dataclass(frozen=True)
class SessionFile:
    """`messages` are the entries with a message, as they are sent. `line_count` includes skipped
    lines; of a JSON document it is the number of its entries.
    """

    messages: list[Json]
    session_id: str | None
    line_count: int = 0
    skipped: list[SkippedLine] = field(default_factory=list[SkippedLine])

    @property
    def other_count(self) -> int:
        """Entries without a message, such as summaries."""
        return self.line_count - len(self.messages) - len(self.skipped)


def detect_session(source: BinaryIO) -> tuple[bool, bytes]:
    """Whether a file holds messages and not traces, and the bytes that were read to find out. The
    first lines may have any length, and may be damaged. A JSON document of several lines is read as
    a whole, and a line with a whole conversation with the line after it: see `detect_format`.
    """
    head: list[bytes] = []
    size = 0
    decision: bool | None = None
    for line in limited_lines(source):
        head.append(line)
        size += len(line)
        if decision is None and not line.isspace():
            decision = _is_session_line(line.removeprefix(_BOM))
        is_document = head[0].removeprefix(_BOM).strip() in _DOCUMENT_STARTS
        if (decision is not None and not is_document) or size > MAX_UNDECIDED_BYTES:
            break
    if decision and head and _is_conversation(head[-1].removeprefix(_BOM)):
        for line in limited_lines(source):
            head.append(line)
            size += len(line)
            if line.strip() or size > MAX_FILE_BYTES:
                break
    return bool(decision), b"".join(head)


def detect_format(head: bytes) -> TraceFormat | None:
    """The format of another program's export by the keys of its first record; None for traces of
    Hansei and sessions with messages. `head` is a JSON document, or the first lines of a file. Two
    lines with `messages` each are two conversations of a model API; one such line is a session.
    """
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        pass
    else:
        return _record_format(value)
    lines = [line for line in head.removeprefix(_BOM).splitlines() if line.strip()]
    if len(lines) > 1 and all(map(_is_conversation, lines[-2:])):
        return "openai"
    return next((name for name, pattern in _FORMAT_KEYS.items() if pattern.search(head)), None)


def _is_conversation(line: bytes) -> bool:
    """Whether a line is an object with a list of messages, such as a request of a model API."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    entry = cast(Json, value)
    return isinstance(entry.get("messages"), list) and not _has_message(entry)


def _record_format(value: Any) -> TraceFormat | None:
    while isinstance(value, list) and value:
        value = cast("list[Any]", value)[0]
    if not isinstance(value, dict):
        return None
    record = cast(Json, value)
    for key, found in _RECORD_KEYS.items():
        if key in record:
            return found
    if record.get("type") in ("session_meta", "response_item"):
        return "codex"
    records = next((record[name] for name in RECORD_FIELDS if record.get(name)), None)
    return _record_format(records) if isinstance(records, list) else None


def unrecognized_fields(head: bytes) -> str | None:
    """The fields of the first record, if they are neither those of a trace nor of a known export.
    `head` is what `detect_session` has read.
    """
    text = head.removeprefix(_BOM).strip()
    for part in (text, text.partition(b"\n")[0]):
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        while isinstance(value, list) and value:
            value = cast("list[Any]", value)[0]
        if not isinstance(value, dict) or not value or "events" in value or "state" in value:
            return None
        return ", ".join(list(cast(Json, value))[:MAX_NAMED_FIELDS])
    return None


def _is_session_line(line: bytes) -> bool | None:
    """None if the line does not show it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):  # a damaged line, or a document of several lines
        found = _SIGNATURE.search(line)
        return None if found is None else found[1] is None
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, dict):
            entry = cast(Json, item)
            if "events" in entry:
                return False
            if _has_message(entry) or any(isinstance(entry.get(n), list) for n in MESSAGE_FIELDS):
                return True
    return None


def _has_message(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("message"), dict) or isinstance(entry.get("role"), str)


def read_session_file(text: bytes) -> SessionFile:
    """Raises `BadRequestError` if the file contains no message."""
    entries: list[Json] = []
    skipped: list[SkippedLine] = []
    line_count = 0
    for number, item in _read_items(text.removeprefix(_BOM)):
        line_count += 1
        if isinstance(item, dict) and not is_too_deep(item):
            entries.append(cast(Json, item))
        elif isinstance(item, dict):
            skipped.append(SkippedLine(number, "nested too deeply"))
        else:
            reason = item.reason if isinstance(item, _Damaged) else "not a JSON object"
            skipped.append(SkippedLine(number, reason))
    messages = [_to_sent_entry(entry) for entry in entries if _has_message(entry)]
    if not messages and skipped:
        first = skipped[0]
        message = f"The file contains no message. Line {first.number}: {first.reason}."
        raise BadRequestError(message, code="malformed_json")
    if not messages:
        raise BadRequestError("The file contains no message.", code="invalid")
    ids = (entry.get("sessionId") or entry.get("session_id") for entry in entries)
    session_id = next((name for name in ids if isinstance(name, str)), None)
    session_id = session_id[:MAX_SESSION_ID_LENGTH] if session_id else None
    return SessionFile(messages, session_id, line_count, skipped)


def is_too_deep(value: Any) -> bool:
    """Whether lists and objects are nested in more than `MAX_DEPTH` levels."""
    level = [value]
    for _ in range(MAX_DEPTH):
        parts: list[Any] = []
        for part in level:
            items = cast(Json, part).values() if isinstance(part, dict) else cast("list[Any]", part)
            parts += [item for item in items if isinstance(item, dict | list)]
        if not parts:
            return False
        level = parts
    return True


@dataclass(frozen=True)
class _Damaged:
    reason: str


def _read_items(text: bytes) -> Iterator[tuple[int, Any]]:
    """The lines or entries with their number from 1. A damaged line is a `_Damaged`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield number, _parse_line(line)
        return
    if isinstance(document, dict):
        fields = cast(Json, document)
        document = next((fields[name] for name in MESSAGE_FIELDS if name in fields), [fields])
    items = cast("list[Any]", document) if isinstance(document, list) else [document]
    yield from enumerate(items, start=1)


def _parse_line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except UnicodeDecodeError:
        return _Damaged("not UTF-8")
    except RecursionError:
        return _Damaged("nested too deeply")
    except ValueError as error:
        return _Damaged(f"not JSON: {error}")


def _to_sent_entry(entry: Json) -> Json:
    message = entry.get("message")
    if not isinstance(message, dict):
        return _without_media(entry)
    sent = {name: entry[name] for name in _ENTRY_FIELDS if name in entry}
    return sent | {"message": _without_media(cast(Json, message))}


def _without_media(message: Json) -> Json:
    """The message without the data of images and files in its content and its tool results."""
    return {**message, "content": _strip(message["content"])} if "content" in message else message


def _strip(content: Any) -> Any:
    if isinstance(content, list):
        return [_strip(block) for block in cast("list[Any]", content)]
    if not isinstance(content, dict):
        return content
    block = cast(Json, content)
    if block.get("type") in _MEDIA_TYPES:
        return {"type": block["type"]}
    return {**block, "content": _strip(block["content"])} if "content" in block else block


class ReplayedInput(io.RawIOBase):
    """The bytes of `head`, followed by the rest of `source`."""

    def __init__(self, head: bytes, source: BinaryIO) -> None:
        super().__init__()
        self._head = io.BytesIO(head)
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head.read(len(buffer)) or self._source.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
