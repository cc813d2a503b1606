"""Whether the envelope of an event says that a call failed, and the text to quote.

The envelope is what an event states in its own fields: `error`, `is_error`, an HTTP status or an
exit code in its metadata. Importers translate the envelopes of their formats into these fields. The
text of a response is never an envelope: it is quoted, and nothing is concluded from it. Another
exit code than 0 is a failure, unless the manual of the command gives it the meaning of a result.

The category of a reported error is that of a text of an operating system, HTTP or a programming
language in its message. Sources: errno messages (POSIX.1-2017), HTTP status codes (RFC 9110),
exception names of Python and JavaScript.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from memory_api.text.excerpts import excerpt, first_line
from memory_api.trace_analysis.arguments import MAX_COMMAND_CHARACTERS
from memory_api.traces.schemas import ErrorCategory, Event

_EXCEPTION_LAST_LINE = re.compile(
    r"(?:^|\n)((?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b[^\n]{0,300})\s*$"
)
_EXIT_CODE_MESSAGE = re.compile(r"exit code -?\d+")
_ERROR_FLAGS = ("is_error", "isError")
_STATUS_FIELDS = ("status_code", "http_status", "statusCode")
_EXIT_CODE_FIELDS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_LIST_SEPARATOR = re.compile(r"[;\n]")
_PIPE_SEPARATOR = re.compile(r"\|\|?|&&")
_SHELL_WITH_SCRIPT = re.compile(
    r"""\s*(?:(?:[\w/]*/)?(?:ba|da|z)?sh\s+)?-\w{0,4}c\s+(?P<quote>["'])(?P<script>.*)(?P=quote)\s*$""",
    re.DOTALL,
)
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_END_OF_COMPOUND = re.compile(r"\s*(?:done|fi|esac|\}|\))")
_SKIPPED_WORDS = frozenset(
    {"if", "while", "until", "then", "do", "else", "time", "sudo", "env", "nice"}
)
_GREP = frozenset(["grep", "egrep", "fgrep", "zgrep", "rg", "ag", "ack", "findstr"])
_ONE = frozenset({1})
_RESULT_CODES: dict[str, frozenset[int]] = {
    **dict.fromkeys(_GREP, _ONE),
    **dict.fromkeys(["diff", "cmp", "colordiff", "fc", "test", "[", "[[", "!", "expr"], _ONE),
    **dict.fromkeys(["which", "where", "type", "hash", "pgrep", "pidof"], _ONE),
    "robocopy": frozenset(range(1, 8)),
}
_RESULT_CODES_WITH: tuple[tuple[str, frozenset[str], frozenset[int]], ...] = (
    ("command", frozenset({"-v"}), _ONE),
    ("git", frozenset({"diff", "grep", "--is-ancestor"}), _ONE),
    ("kubectl", frozenset({"diff"}), _ONE),
    (
        "systemctl",
        frozenset({"is-active", "is-enabled", "is-failed", "status"}),
        frozenset({1, 3, 4}),
    ),
    ("terraform", frozenset({"-detailed-exitcode"}), frozenset({2})),
    ("tofu", frozenset({"-detailed-exitcode"}), frozenset({2})),
    ("xargs", _GREP, frozenset({1, 123})),
    ("find", _GREP, _ONE),
)
"""Commands, some only with one of these words, whose manual gives an exit code other than 0 the
meaning of a result: no line matches, the files differ, the condition is false, the service does not
run, there are changes. Sources: POSIX.1-2017 (grep, diff, cmp, test, expr, command), the manuals of
ripgrep, Git, kubectl, procps, systemd, GNU findutils, Terraform and Robocopy.
"""


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


def exit_code_from_metadata(metadata: Mapping[str, Any]) -> int | None:
    """The exit code in an event's metadata, under any common name."""
    for name in _EXIT_CODE_FIELDS:
        value = metadata.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,5}", value):
            return int(value)
    return None


def is_result(tool: str, command: str, exit_code: int) -> bool:
    """Whether `exit_code` is a result of a command, by its manual, and no failure: 1 of `grep`, for
    example. True if one of the commands that may have set the code has such a result. The tool may
    be the command, and its arguments the rest.
    """
    script = _SHELL_WITH_SCRIPT.match(command[:MAX_COMMAND_CHARACTERS])
    bare = _QUOTED.sub("''", script["script"] if script else command[:MAX_COMMAND_CHARACTERS])
    lists = [part for part in _LIST_SEPARATOR.split(bare) if part.strip()]
    last = [part for part in lists if not part.lstrip().startswith("#")][-1:]
    if last and _END_OF_COMPOUND.match(last[0]):
        last = lists
    parts = [part for commands in last for part in _PIPE_SEPARATOR.split(commands)]
    return any(
        exit_code in _result_codes(words)
        for words in (*map(str.split, parts), f"{tool} {bare}".split())
    )


def _result_codes(words: list[str]) -> frozenset[int]:
    """The exit codes that are results of one command, by its name and words."""
    names = [word.lstrip("({").rsplit("/", 1)[-1].lower() for word in words]
    start = 0
    while start < len(names) and (names[start] in _SKIPPED_WORDS or "=" in words[start]):
        start += 1
    if names[start : start + 1] == ["timeout"]:
        start += 2
    if start >= len(names):
        return frozenset()
    for name, marks, codes in _RESULT_CODES_WITH:
        if names[start] == name and not marks.isdisjoint(names[start + 1 :]):
            return codes
    return _RESULT_CODES.get(names[start], frozenset())


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
