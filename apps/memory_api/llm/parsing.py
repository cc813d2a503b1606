"""JSON out of a model's text, in the order of spec 4 (REQ-REFL-008)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import json_repair

_FENCE = "```"
# An object begins with a key or is empty; a brace in prose ("{x, y}") starts no answer.
_OBJECT = re.compile(r'\{\s{0,64}["}]')
_ALMOST_OBJECT = re.compile(r"\{\s{0,64}(?:[\"'}]|\w{1,64}\s{0,8}:)")
_BRACE_OR_QUOTE = re.compile(r'[{}"]')
_STRING_END = re.compile(r'(?:[^"\\]++|\\.)*+"', re.DOTALL)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def parse_json(text: str) -> Any:
    """The first of these that parses: a json fence, a bare fence, an object with balanced braces,
    the whole text.

    Raises ValueError when none does. The work is linear in the length of the text.
    """
    for value in parsed(text):
        return value
    raise ValueError("there is no JSON in the text")


def parsed(text: str) -> Iterator[Any]:
    """Every value that parses, in that order (a value may come twice)."""
    for candidate in _candidates(text):
        try:
            yield loads(candidate)
        except (ValueError, RecursionError):
            continue


def loads(text: str) -> Any:
    """Strict JSON: no NaN or Infinity. NUL and lone surrogates, which no database stores, become
    U+FFFD.

    Raises ValueError, or RecursionError for absurd nesting.
    """
    return _storable(json.loads(text, parse_constant=_refuse))


def repaired(text: str) -> dict[str, Any] | None:
    """A last try: the object that json-repair makes of damaged JSON. None when there is nothing of
    an object in the text.

    Never for a text that was cut, by the token limit or on its way, and so breaks off before its
    object closes: what is missing would be made up.
    """
    start = _ALMOST_OBJECT.search(text)
    if start is None or _breaks_off(text, start.start()):
        return None
    try:
        value: Any = json_repair.loads(text)
    except (ValueError, RecursionError):
        return None
    return _storable(value) if isinstance(value, dict) and value else None


def _breaks_off(text: str, start: int) -> bool:
    return _closing(text, start) is None and not text.rstrip("` \n\r\t").endswith("}")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _candidates(text: str) -> Iterator[str]:
    fences = list(_fences(text))
    yield from (body for label, body in fences if label == "json")
    yield from (body for label, body in fences if not label)
    yield from _balanced(text)
    yield text


def _fences(text: str) -> Iterator[tuple[str, str]]:
    """(label in lower case, content) of each fenced block."""
    pieces = text.split(_FENCE)
    for block in pieces[1:-1:2]:
        label, newline, body = block.partition("\n")
        if newline and label.strip().isalnum():
            yield label.strip().lower(), body
        elif label.lower().startswith("json"):
            yield "json", block[4:]
        else:
            yield "", block


def _balanced(text: str) -> Iterator[str]:
    """Each outermost `{…}`. After one that never closes there is nothing: its inside is not the
    answer."""
    start = _OBJECT.search(text)
    while start is not None:
        end = _closing(text, start.start())
        if end is None:
            return
        yield text[start.start() : end]
        start = _OBJECT.search(text, end)


def _closing(text: str, start: int) -> int | None:
    """The position after the brace that closes the one at `start`; braces inside strings do not
    count."""
    depth, position = 0, start
    while match := _BRACE_OR_QUOTE.search(text, position):
        position = match.end()
        if match.group() == '"':
            string = _STRING_END.match(text, position)
            if string is None:
                return None
            position = string.end()
        elif match.group() == "{":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return position
    return None


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {_storable(key): _storable(item) for key, item in pairs}
    if isinstance(value, list):
        return [_storable(item) for item in cast("list[Any]", value)]
    return value
