"""Exit codes of calls, and which commands test or modify something."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from apps.memory_api.trace_analysis.parser import ParsedTrace, ToolCall

_EXIT_CODE_FIELDS = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_EXIT_CODE_TEXT = re.compile(
    r"(?:\bexit(?:ed|s)?(?: with)?(?: non-?zero)?[ _-]?(?:code|status)?|\breturncode"
    r"|\bnon-zero exit status|終了コード)[\"']?\s{0,2}[:=は]?\s{0,2}\(?(?P<code>-?\d{1,3})\b",
    re.IGNORECASE,
)
_CHECK_COMMAND = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|tsc|mypy|pyright|eslint"
    r"|go (?:test|vet|build)|cargo (?:test|check|build)|(?:npm|yarn|pnpm)(?: run)? (?:test|build)"
    r"|make (?:test|check)|(?:mvn|gradle|gradlew) \w*(?:test|check))\b"
)
_SHELL_WRITE = re.compile(
    r"(?<![\d&<=-])>{1,2} ?(?!&|/dev/)[\w./~$\"']|\bsed\b[^|;\n]{0,80} -\w*i|\btee\b"
    r"|\b(?:mv|cp|rm|patch|touch) |\bgit (?:apply|checkout|reset|restore|stash|merge|revert)\b"
    r"|\b(?:pip|npm|yarn|pnpm|go|cargo|apt|apt-get) (?:install|add|get|i|remove|uninstall)\b"
)
_READING_COMMAND = re.compile(
    r"\s*(?:cat|cd|cmp|date|diff|echo|e?grep|file|head|ls|pwd|rg|stat|tail|wc|which"
    r"|git (?:blame|diff|log|show|status))(?:\s|$)"
)
_COMMAND_SEPARATOR = re.compile(r"\|\|?|&&|[;\n]")
_COMMAND_ARGUMENTS = ("", "command", "cmd")
_MAX_COMMAND_CHARACTERS = 4_000
_MAX_EDGE_CHARACTERS = 1_000


def exit_code_from_metadata(metadata: Mapping[str, Any]) -> int | None:
    """The exit code in an event's metadata, under any common name."""
    for name in _EXIT_CODE_FIELDS:
        value = metadata.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,5}", value):
            return int(value)
    return None


def exit_code_of(trace: ParsedTrace, call: ToolCall) -> int | None:
    """The exit code of a call: from the response's metadata, the call's metadata or the response
    text.
    """
    if call.response_position is not None:
        exit_code = exit_code_from_metadata(trace.events[call.response_position].metadata)
        if exit_code is not None:
            return exit_code
    exit_code = exit_code_from_metadata(trace.events[call.position].metadata)
    return exit_code if exit_code is not None else exit_code_from_text(call.response)


def exit_code_from_text(text: str) -> int | None:
    """The last exit code stated in the first or last 1,000 characters of an output."""
    edges = (
        text
        if len(text) <= 2 * _MAX_EDGE_CHARACTERS
        else f"{text[:_MAX_EDGE_CHARACTERS]}\n{text[-_MAX_EDGE_CHARACTERS:]}"
    )
    codes = [match["code"] for match in _EXIT_CODE_TEXT.finditer(edges)]
    return int(codes[-1]) if codes else None


def may_modify(call: ToolCall) -> bool:
    """False if a call is known to only read: the trace states it of the tool, or the call is a
    shell command that consists of commands that only read.
    """
    return call.writes or (call.writes is None and not _is_reading_command(call))


def _is_reading_command(call: ToolCall) -> bool:
    command = next(
        (call.arguments[name] for name in _COMMAND_ARGUMENTS if name in call.arguments), ""
    )
    if len(command) > _MAX_COMMAND_CHARACTERS or "$(" in command or "`" in command:
        return False
    parts = [part for part in _COMMAND_SEPARATOR.split(command) if part.strip()]
    are_reading = [_READING_COMMAND.match(part) for part in parts]
    return bool(parts) and all(are_reading) and not _SHELL_WRITE.search(command)


def runs_checks(call: ToolCall) -> bool:
    """Whether a call runs tests, a build or a type check."""
    return bool(_CHECK_COMMAND.search(call.content[:2_000]))
