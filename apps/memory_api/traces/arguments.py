"""Arguments of a call, whatever style it is written in, and what differs between two calls."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from apps.memory_api.traces.quotes import cut

_PARSE_LIMIT = 40_000
_LEAVES = 80
_BRACKET = re.compile(r"^\s*([\w.\-/ ]{1,60})\[(.*)\]\s*$", re.DOTALL)
Arguments = dict[str, str]
"""Path of the argument -> its value as text. A call that is not a mapping has the one path ''."""


@dataclass(frozen=True, slots=True)
class Change:
    """One argument that differs between two calls; None = the call did not have it."""

    name: str
    before: str | None
    after: str | None


def as_mapping(value: Any) -> dict[str, Any]:
    """The value when it is a mapping, else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_items(value: Any) -> list[Any]:
    """The items of a list or tuple, else none."""
    return list(cast(Sequence[Any], value)) if isinstance(value, (list, tuple)) else []


def parse(content: str, tool: str) -> Arguments:
    """Flat arguments of a JSON, Python-literal, bracket (`Search[x]`) or free-text call; never
    raises."""
    text = content.strip()
    value = _load(text) if text[:1] in "{[" else None
    if isinstance(value, dict):
        return flat(cast(Any, value))
    bracket = _BRACKET.match(text) if len(text) < _PARSE_LIMIT else None
    if bracket:
        return {"": bracket.group(2)}
    if tool and text.startswith(tool + " "):
        text = text[len(tool) + 1 :]
    return {"": text} if text and text != tool else {}


def _load(text: str) -> Any:
    if len(text) > _PARSE_LIMIT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _flatten(path: str, value: Any, out: Arguments, depth: int) -> None:
    if len(out) >= _LEAVES or depth > 8:
        return
    if isinstance(value, str):
        value = _inner_list(value)
    if isinstance(value, dict):
        for key, item in as_mapping(value).items():
            _flatten(f"{path}.{key}" if path else str(key), item, out, depth + 1)
        return
    if not isinstance(value, (list, tuple)):
        out[path] = _leaf(value)
        return
    items = as_items(value)
    if any(isinstance(v, (dict, list, tuple)) for v in items):
        for n, item in enumerate(items):
            _flatten(f"{path}[{n + 1}]", item, out, depth + 1)
    else:
        out[path] = ", ".join(sorted(_leaf(v) for v in items))


def _inner_list(text: str) -> Any:
    """A list written as text inside a call, as a list; any other text as it is."""
    if text[:1] == "[" and text[-1:] == "]" and len(text) < 2_000:
        inner = _load(text)
        return cast(Any, inner) if isinstance(inner, list) else text
    return text


def _leaf(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def flat(value: Any) -> Arguments:
    """Flat arguments of an already parsed mapping."""
    out: Arguments = {}
    if value is not None:
        _flatten("", value, out, 0)
    return out


def differences(before: Arguments, after: Arguments) -> tuple[Change, ...]:
    """What changed from one call to the next, argument by argument; free text is reduced to the
    words that differ."""
    changes: list[Change] = []
    for name in [*before, *(k for k in after if k not in before)]:
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and _same(old, new):
            continue
        if name == "" and old is not None and new is not None:
            changes += _reworded(old, new)
            continue
        changes.append(
            Change(
                name, None if old is None else cut(old, 80), None if new is None else cut(new, 80)
            )
        )
    return tuple(changes)


SPACE, MARKS, BODY = "~space", "~marks", "~body"
"""Names of changes that are told in words: only white space differs; only the quotation marks
around the whole differ; the text below the first line differs."""


def named(change: Change) -> bool:
    """Whether the change is one of a named argument, which can be shown as name=value."""
    return change.name not in {"", SPACE, MARKS, BODY}


def _reworded(old: str, new: str) -> list[Change]:
    if old.split() == new.split():
        return [Change(SPACE, None, None)]
    if old.strip("\"' ") == new.strip("\"' "):
        return [Change(MARKS, cut(old, 80), cut(new, 80))]
    (head, _, body), (new_head, _, new_body) = old.partition("\n"), new.partition("\n")
    changes: list[Change] = []
    if head.strip() != new_head.strip():
        before, after = _middle(head, new_head)
        changes.append(Change("", cut(before, 80), cut(after, 80)))
    if body != new_body:
        changes.append(Change(SPACE if body.split() == new_body.split() else BODY, None, None))
    return changes


def _same(a: str, b: str) -> bool:
    return a == b or a.strip().casefold() == b.strip().casefold()


def _middle(old: str, new: str) -> tuple[str, str]:
    """Both texts without the words they share at either end."""
    a, b = old[:4_000].split(" "), new[:4_000].split(" ")
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    return " ".join(a[head : len(a) - tail]).strip(), " ".join(b[head : len(b) - tail]).strip()


def shown(tool: str, content: str, args: Arguments, limit: int = 90) -> str:
    """The call as a person would write it: `Search[x]`, `tool(a=1, b=2)` or the command line
    itself."""
    if not args:
        return cut(tool or content, limit)
    if "" in args:
        text = content.strip()
        if not tool or text[: len(tool)] == tool:
            return cut(text.split("\n", 1)[0] if "\n" in text[:400] else text, limit)
        return f"{tool}({cut(args[''], limit)})"
    parts: list[str] = []
    for name, value in args.items():
        part = f"{name}={cut(value, 40)}"
        if sum(map(len, parts)) + len(part) > limit:
            parts.append("…")
            break
        parts.append(part)
    return f"{tool}({', '.join(parts)})"
