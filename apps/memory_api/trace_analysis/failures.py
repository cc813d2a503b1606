"""Whether a response reports a failure, and the line that says why.

An error field, an exit code, a JSON error and a traceback are reports. A phrase of a vocabulary is
only wording: the response is quoted, and nothing more is concluded from it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from memory_api.text.excerpts import excerpt, first_line
from memory_api.trace_analysis.arguments import as_items, as_mapping
from memory_api.trace_analysis.exit_codes import EXIT_CODE_LINE
from memory_api.trace_analysis.vocabulary import Vocabulary
from memory_api.traces.schemas import Event

FailureSource = Literal["tool", "wording", "message"]
"""What shows a failure: a report of the tool, a phrase in its short response, or only the agent's
next message.
"""
_EXCEPTION_LAST_LINE = re.compile(
    r"(?:^|\n)((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b[^\n]{0,300})\s*$"
)
_EXIT_CODE_MESSAGE = re.compile(r"exit code -?\d+")
_HEAD_CHARACTERS = 400
_OUTPUT_CHARACTERS = 8_000
_JSON_ERROR_FIELD = re.compile(
    r'"(?:err\w{0,18}|fehler\w{0,12}|isError|ok|success|status)"\s*:\s*(?!null|""|\[\]|\{\})',
    re.IGNORECASE,
)
_ERROR_NAME = re.compile(
    r"(?:err(?:or|o|eur|ore|ores)?s?|fehler)(?:_?(?:msg|message|text|description|details?|reason|info|code|type))?",
    re.IGNORECASE,
)
_NO_ERROR = frozenset(
    ("", "0", "none", "null", "nil", "false", "no error", "no errors", "n/a", "ok", "success")
)
_NO_ERROR_LINE = re.compile(
    r"\W{0,4}(?:errors?|failures?|exceptions?|fatal|panic) ?: ?"
    r"(?:none|null|nil|false|n/a|ok|0|no errors?)(?: found| errors?)?\W{0,4}",
    re.IGNORECASE,
)
"""`KeyError: 0` is an error: only these words alone say that there was none."""
_SUCCESS_FIELDS = ("ok", "success")
_REASON_FIELDS = ("message", "reason", "detail", "details", "description", "msg")
_ENVELOPE_FIELDS = frozenset(("status", "code", "data", *_REASON_FIELDS))
"""With other fields, `status` may be that of the object that the call asked for."""
_STATUS_FIELDS = ("status_code", "http_status", "statusCode")


@dataclass(frozen=True, slots=True)
class Failure:
    """The message of a failure and what shows it."""

    message: str
    source: FailureSource = "tool"


def error_message(error: dict[str, Any]) -> str:
    """The message of an event's `error` mapping, from the first field that has one."""
    for name in ("message", "error_message", "error", "detail", "code", "type", "category"):
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return most_informative_line(value)
    return excerpt(json.dumps(error, ensure_ascii=False, default=str)[:600]) if error else ""


def detect_failure(event: Event, vocabulary: Vocabulary) -> Failure | None:
    """The failure that a response reports or words; None if there is none."""
    text = event.content
    if event.error:
        return Failure(error_message(event.error) or most_informative_line(text) or "error")
    for name in _STATUS_FIELDS:
        status = event.metadata.get(name)
        if isinstance(status, int) and 400 <= status < 600:
            return Failure(most_informative_line(text) or f"{name} {status}")
    head = text[:_HEAD_CHARACTERS].strip()
    if head[:1] == "{" and len(text) < 20_000 and (message := _json_error(text)):
        return Failure(message)
    if _NO_ERROR_LINE.fullmatch(head.split("\n", 1)[0]):
        return None
    if vocabulary.match("failure_start", head):
        return Failure(most_informative_line(text))
    if "Traceback" in text[:4_000]:
        exception_line = _EXCEPTION_LAST_LINE.search(text[-800:])
        if exception_line:
            return Failure(excerpt(exception_line.group(1)))
    if len(text) < _HEAD_CHARACTERS and (
        (head[:1] not in "{[" and vocabulary.match("failure_opening", head))
        or vocabulary.search("failure_short", head)
    ):
        return Failure(most_informative_line(text), "wording")
    return None


def exit_code_failure(exit_code: int, text: str, vocabulary: Vocabulary) -> Failure:
    """The failure of a command: the line of its output that words an error, else its exit code. The
    first line of an output need not have to do with the error.
    """
    exception_line = _EXCEPTION_LAST_LINE.search(text[-800:])
    if exception_line:
        return Failure(excerpt(exception_line.group(1)))
    for line in (*text[:_OUTPUT_CHARACTERS].splitlines(), *text[-_OUTPUT_CHARACTERS:].splitlines()):
        start = line[:_HEAD_CHARACTERS]
        if vocabulary.search("error_line", start) and not EXIT_CODE_LINE.match(start):
            return Failure(excerpt(line.strip()))
    return Failure(f"exit code {exit_code}")


def is_exit_code(message: str) -> bool:
    """Whether the message of a failure is only an exit code: then there is nothing to quote."""
    return bool(_EXIT_CODE_MESSAGE.fullmatch(message))


def _json_error(text: str) -> str:
    """The error of a JSON object: a field such as `error` or `errorMessage`, or one that states
    that the call did not succeed.
    """
    if not _JSON_ERROR_FIELD.search(text[:_HEAD_CHARACTERS]):
        return ""
    try:
        body = as_mapping(json.loads(text))
    except (ValueError, RecursionError):
        return ""
    if any(body.get(name) is True for name in _SUCCESS_FIELDS):
        return ""
    for name, value in body.items():
        if _ERROR_NAME.fullmatch(name) and (message := _stated_error(value)):
            return message
    is_error = body.get("status") == "error" and body.keys() <= _ENVELOPE_FIELDS
    if (
        is_error
        or body.get("isError") is True
        or any(body.get(name) is False for name in _SUCCESS_FIELDS)
    ):
        reasons = (body.get(name) for name in _REASON_FIELDS)
        return excerpt(next((r for r in reasons if isinstance(r, str) and r.strip()), text))
    return ""


def _stated_error(value: Any) -> str:
    """The message of an error field: a text, an object, or the first item of a list of them; "" if
    it says that there was no error.
    """
    first = next(iter(as_items(value)), value)
    if isinstance(first, str):
        return "" if first.strip().lower() in _NO_ERROR else excerpt(first)
    return error_message(as_mapping(first))


def most_informative_line(text: str) -> str:
    """The line that states the error: the exception of a traceback, the item after `ERRORS:`, else
    the first line.
    """
    if len(text) > 60:
        exception_line = _EXCEPTION_LAST_LINE.search(text[-800:])
        if exception_line:
            return excerpt(exception_line.group(1))
        if text.lstrip().startswith("Traceback"):
            lines = [line for line in text[:20_000].splitlines() if line.strip()]
            named = [
                line for line in lines if re.match(r"(?:\w+\.)*\w*(?:Error|Exception)\b", line)
            ]
            return excerpt((named or lines)[-1])
        item = re.search(r"ERRORS?:?\s*\n\s*-\s*([^\n]{5,200})", text[:3_000])
        if item:
            return excerpt(item.group(1))
    return first_line(text)
