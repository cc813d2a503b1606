"""Whether the envelope of an event says that a call failed, and the text to quote.

The envelope is what an event states in its own fields: `error`, `is_error`, an HTTP status or an
exit code in its metadata. Importers translate the envelopes of their formats into these fields. The
text of a response is never an envelope: it is quoted, and nothing is concluded from it.

The category of a reported error is that of a text of an operating system, HTTP or a programming
language in its message. Sources: errno messages (POSIX.1-2017), HTTP status codes (RFC 9110),
exception names of Python and JavaScript.
"""

from __future__ import annotations

import json
import re
from typing import Any

from memory_api.text.excerpts import excerpt, first_line
from memory_api.traces.schemas import ErrorCategory, Event

_EXCEPTION_LAST_LINE = re.compile(
    r"(?:^|\n)((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b[^\n]{0,300})\s*$"
)
_EXIT_CODE_MESSAGE = re.compile(r"exit code -?\d+")
_ERROR_FLAGS = ("is_error", "isError")
_STATUS_FIELDS = ("status_code", "http_status", "statusCode")


def detect_failure(event: Event) -> str:
    """What to quote of a response whose envelope says that the call failed; "" if it does not."""
    if event.error:
        return error_message(event.error) or most_informative_line(event.content) or "error"
    if any(event.metadata.get(name) is True for name in _ERROR_FLAGS):
        return most_informative_line(event.content) or "error"
    for name in _STATUS_FIELDS:
        status = event.metadata.get(name)
        if isinstance(status, int) and 400 <= status < 600:
            return most_informative_line(event.content) or f"{name} {status}"
    return ""


def error_message(error: dict[str, Any]) -> str:
    """The message of an event's `error` mapping, from the first field that has one."""
    for name in ("message", "error_message", "error", "detail", "code", "type", "category"):
        value = error.get(name)
        if isinstance(value, str) and value.strip():
            return most_informative_line(value)
    return excerpt(json.dumps(error, ensure_ascii=False, default=str)[:600]) if error else ""


def exit_code_failure(exit_code: int, text: str) -> str:
    """What to quote of a command that failed: the exception that ends its output, else its exit
    code.
    """
    exception_line = _EXCEPTION_LAST_LINE.search(text[-800:])
    return excerpt(exception_line.group(1)) if exception_line else f"exit code {exit_code}"


def is_exit_code(message: str) -> bool:
    """Whether the message of a failure is only an exit code: then there is nothing to quote."""
    return bool(_EXIT_CODE_MESSAGE.fullmatch(message))


def most_informative_line(text: str) -> str:
    """The line of a failed response to quote: the exception that ends it, else the first line."""
    exception_line = _EXCEPTION_LAST_LINE.search(text[-800:])
    return excerpt(exception_line.group(1)) if exception_line else first_line(text)


_PATTERNS: tuple[tuple[ErrorCategory, str], ...] = (
    (ErrorCategory.TIMEOUT_ERROR, r"tim(?:ed|e)[ _-]?out|deadline exceeded|タイムアウト"),
    (
        ErrorCategory.PERMISSION_ERROR,
        r"permission denied|\bforbidden\b|unauthori[sz]ed|access denied"
        r"|operation not permitted|\b40[13]\b",
    ),
    (
        ErrorCategory.NETWORK_ERROR,
        r"rate.?limit|too ?many ?requests|\b429\b|connection (?:refused|reset|error|aborted|closed)"
        r"|ECONN|getaddrinfo|name resolution|unreachable|\b50[234]\b|bad gateway",
    ),
    (
        ErrorCategory.VALIDATION_ERROR,
        r"validation error|syntax ?error|IndentationError|\binvalid\b|missing required"
        r"|is required",
    ),
    (ErrorCategory.LLM_ERROR, r"context length|content.?filter|max(?:imum)? tokens"),
)
_CATEGORIES = [(c, re.compile(pattern, re.IGNORECASE)) for c, pattern in _PATTERNS]
_SAMPLE_CHARACTERS = 900


def classify_error(message: str) -> ErrorCategory | None:
    """The category whose text occurs first in the message; None if none does."""
    size = _SAMPLE_CHARACTERS
    sample = message if len(message) <= 2 * size else f"{message[:size]}\n{message[-size:]}"
    found = [
        (match.start(), number, category)
        for number, (category, pattern) in enumerate(_CATEGORIES)
        if (match := pattern.search(sample))
    ]
    return min(found)[2] if found else None
