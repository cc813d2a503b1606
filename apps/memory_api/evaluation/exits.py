"""Commands: how they ended (exit codes in metadata, in JSON, in words), which of them test, which
change something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from apps.memory_api.traces.steps import Run, Step

_NAMES = ("exit_code", "exitCode", "returncode", "return_code", "exit_status")
_WORDS = re.compile(
    r"(?:\bexit(?:ed|s)?(?: with)?(?: non-?zero)?[ _-]?(?:code|status)?|\breturncode"
    r"|\bnon-zero exit status|終了コード)[\"']?\s{0,2}[:=は]?\s{0,2}\(?(?P<code>-?\d{1,3})\b",
    re.IGNORECASE,
)
_CHECK = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|tsc|mypy|pyright|eslint"
    r"|go (?:test|vet|build)|cargo (?:test|check|build)|(?:npm|yarn|pnpm)(?: run)? (?:test|build)"
    r"|make (?:test|check)|(?:mvn|gradle|gradlew) \w*(?:test|check))\b"
)
_EDITOR = re.compile(r"replace|edit(?:or)?(?:_|$)|patch|insert|undo", re.IGNORECASE)
_SHELL_EDIT = re.compile(
    r"(?<![\d&<=-])>{1,2} ?(?!&|/dev/)[\w./~$\"']|\bsed\b[^|;\n]{0,80} -\w*i|\btee\b"
    r"|\b(?:mv|cp|rm|patch|touch) |\bgit (?:apply|checkout|reset|restore|stash|merge|revert)\b"
    r"|\b(?:pip|npm|yarn|pnpm|go|cargo|apt|apt-get) (?:install|add|get|i|remove|uninstall)\b"
)
_EDGE = 1_000


def exit_in(metadata: Mapping[str, Any]) -> int | None:
    """The exit code that metadata gives, under any usual name."""
    for name in _NAMES:
        value = metadata.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,5}", value):
            return int(value)
    return None


def exit_of(run: Run, step: Step) -> int | None:
    """The exit code of one call, None when nothing tells it."""
    if step.response_at is not None:
        stated = exit_in(run.events[step.response_at].metadata)
        if stated is not None:
            return stated
    stated = exit_in(run.events[step.at].metadata)
    return stated if stated is not None else exit_in_words(step.response)


def exit_in_words(text: str) -> int | None:
    """The last exit code that the beginning or the end of an output states."""
    edges = text if len(text) <= 2 * _EDGE else f"{text[:_EDGE]}\n{text[-_EDGE:]}"
    found = [match["code"] for match in _WORDS.finditer(edges)]
    return int(found[-1]) if found else None


def alters(step: Step) -> bool:
    """Whether a call may have changed what was tested before it: by its tool's name, or a command
    that writes files.
    """
    if step.writes or _EDITOR.search(step.tool):
        return True
    return bool(_SHELL_EDIT.search(step.content[:4_000]))


def is_check(step: Step) -> bool:
    """Whether a call runs tests, a build or a type check."""
    return bool(_CHECK.search(step.content[:2_000]))
