"""Arguments of a call, in whatever syntax the call is written; the differences between two calls;
what a command does.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from memory_api.text.excerpts import excerpt, excerpt_differences

_MAX_PARSED_CHARACTERS = 40_000
_MAX_ARGUMENTS = 80
_BRACKET_CALL = re.compile(r"^\s*([\w.\-/ ]{1,60})\[(.*)\]\s*$", re.DOTALL)
COMMAND_ARGUMENTS = frozenset({"command", "cmd", "code", "script"})
"""Names of an argument that is a command or code."""
MAX_COMMAND_CHARACTERS = 4_000
_SHELL_OPTION = re.compile(r"-\w{0,4}c")
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
    r"\s*(?:cat|cd|cmp|date|diff|echo|e?grep|file|head|journalctl|less|ls|pwd|rg|stat|tail|wc|which"
    r"|git (?:blame|diff|log|show|status)|kubectl (?:describe|get|logs)|docker (?:inspect|logs|ps)"
    r"|gh run view)(?:\s|$)"
)
_COMMAND_SEPARATOR = re.compile(r"\|\|?|&&|[;\n]")
Arguments = dict[str, str]
"""Path of an argument -> its value as text. Free text has the path ''."""


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """An argument that differs between two calls; None means that the call does not have it."""

    name: str
    before: str | None
    after: str | None


def as_mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty mapping."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_items(value: Any) -> list[Any]:
    """The items of a list or tuple, else an empty list."""
    return list(cast(Sequence[Any], value)) if isinstance(value, (list, tuple)) else []


def parse_arguments(content: str, tool: str) -> Arguments:
    """Flat arguments of a call in JSON, Python literals, brackets (`Search[x]`) or free text. Never
    raises.
    """
    text = content.strip()
    mapping = parse_mapping(text)
    if mapping is not None:
        return flatten_arguments(mapping)
    match = _BRACKET_CALL.match(text) if len(text) < _MAX_PARSED_CHARACTERS else None
    if match:
        return {"": match.group(2)}
    if tool and text.startswith(tool + " "):
        text = text[len(tool) + 1 :]
    return {"": text} if text and text != tool else {}


def parse_mapping(content: str) -> dict[str, Any] | None:
    """The arguments of a call in JSON or as a Python literal; None in any other syntax."""
    text = content.strip()
    value = _parse_literal(text) if text[:1] == "{" else None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _parse_literal(text: str) -> Any:
    if len(text) > _MAX_PARSED_CHARACTERS:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _flatten(path: str, value: Any, arguments: Arguments, depth: int) -> None:
    if len(arguments) >= _MAX_ARGUMENTS or depth > 8:
        return
    if isinstance(value, str):
        value = _parse_nested_list(value)
    if isinstance(value, dict):
        for key, item in as_mapping(value).items():
            _flatten(f"{path}.{key}" if path else str(key), item, arguments, depth + 1)
        return
    if not isinstance(value, (list, tuple)):
        arguments[path] = _format_value(value)
        return
    items = as_items(value)
    if any(isinstance(value, (dict, list, tuple)) for value in items):
        for index, item in enumerate(items):
            _flatten(f"{path}[{index + 1}]", item, arguments, depth + 1)
    else:
        arguments[path] = ", ".join(sorted(_format_value(value) for value in items))


def _parse_nested_list(text: str) -> Any:
    """The list that a string contains, else the string."""
    if text[:1] == "[" and text[-1:] == "]" and len(text) < 2_000:
        value = _parse_literal(text)
        return cast(Any, value) if isinstance(value, list) else text
    return text


def _format_value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def flatten_arguments(value: Any) -> Arguments:
    """Flat arguments of a parsed mapping."""
    arguments: Arguments = {}
    if value is not None:
        _flatten("", value, arguments, 0)
    return arguments


def diff_arguments(
    before: Arguments, after: Arguments, limit: int = 80
) -> tuple[ArgumentChange, ...]:
    """The arguments that differ, each as an excerpt of `limit` characters around the difference."""
    changes: list[ArgumentChange] = []
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and _is_same_value(old, new):
            continue
        if old is not None and new is not None:
            changes.append(ArgumentChange(name, *excerpt_differences(old, new, limit)))
            continue
        changes.append(
            ArgumentChange(
                name,
                None if old is None else excerpt(old, limit),
                None if new is None else excerpt(new, limit),
            )
        )
    return tuple(changes)


def _is_same_value(old: str, new: str) -> bool:
    return old == new or " ".join(old.split()).casefold() == " ".join(new.split()).casefold()


def format_call(tool: str, content: str, arguments: Arguments, limit: int = 90) -> str:
    """The call as a person would write it: `Search[x]`, `tool(a=1, b=2)` or a command line. `limit`
    is in characters.
    """
    if not arguments:
        return excerpt(tool or content, limit)
    if "" in arguments:
        text = content.strip()
        if not tool or text[: len(tool)] == tool:
            return excerpt(text.split("\n", 1)[0] if "\n" in text[:400] else text, limit)
        return f"{tool}({excerpt(arguments[''], limit)})"
    parts: list[str] = []
    for name, value in arguments.items():
        part = f"{name}={excerpt(value, 40)}"
        if sum(map(len, parts)) + len(part) > limit:
            parts.append("…")
            break
        parts.append(part)
    return f"{tool}({', '.join(parts)})"


def command_of(content: str, arguments: Arguments) -> str:
    """The command or code that a call runs: an argument, free text, or the list `["bash", "-lc",
    "…"]`; '' if there is none.
    """
    name = next((n for n in arguments if n in COMMAND_ARGUMENTS or not n), None)
    if name is None:
        return ""
    items = [str(item) for item in as_items((parse_mapping(content) or {}).get(name))]
    if not items:
        return arguments[name]
    return items[2] if len(items) > 2 and _SHELL_OPTION.fullmatch(items[1]) else " ".join(items)


def only_reads(command: str) -> bool:
    """Whether a shell command consists of commands that only read."""
    if len(command) > MAX_COMMAND_CHARACTERS or "$(" in command or "`" in command:
        return False
    parts = [part for part in _COMMAND_SEPARATOR.split(command) if part.strip()]
    are_reading = [_READING_COMMAND.match(part) for part in parts]
    return bool(parts) and all(are_reading) and not _SHELL_WRITE.search(command)


def is_check(content: str) -> bool:
    """Whether a call runs tests, a build or a type check."""
    return bool(_CHECK_COMMAND.search(content[:2_000]))
