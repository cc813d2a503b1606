"""Parse and sanitize untrusted JSON.

NUL and lone surrogates, which PostgreSQL cannot store, become U+FFFD. JSON that nests too deeply,
has too many values or holds NaN or Infinity is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from jiter import from_json

from memory_api.core.errors import HanseiError, InvalidRequest, PayloadTooLarge

MAX_DEPTH = 64
MAX_VALUES = 750_000
"""Commas and opening brackets in a document, about the number of its values. A value of two bytes
takes up to 250 bytes of memory until it is stored.
"""

MAX_NAMES = 50_000
"""Names in one object. The parser compares them while no other thread can run: 740,000 names took
0.9 s, 50,000 take 0.02 s.
"""
MAX_PATH_LENGTH = 160
"""Maximum length of a path in an error message, in characters."""
JSON_LIMITS = f"{MAX_VALUES:,} values, and {MAX_NAMES:,} names in one object"
"""For an error message."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_UNSTORABLE_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""A JSON escape that may stand for an unstorable character. Also matches valid surrogate pairs."""
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[,\[{]', re.DOTALL)
"""A string, or a character outside of strings that separates values or starts a container."""
_NAME_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[:\[\]{}]', re.DOTALL)
"""A string, or a character outside of strings that follows a name or is an end of a container."""
_SIGNS = (b",", b"[", b"{")
_QUOTE = ord('"')
_CONTAINERS = frozenset({dict, list})


class MalformedJson(HanseiError):
    """The request body is not valid JSON."""

    status, code = 400, "malformed_json"


class ParsedJson(NamedTuple):
    """A JSON value. `sanitized` is true if unstorable characters were replaced in it."""

    value: Any
    sanitized: bool


def parse_json(raw: bytes) -> ParsedJson:
    """Parse and sanitize a JSON document.

    Raises `MalformedJson` for text that is not JSON or not UTF-8 and for a name that occurs twice
    in an object, `PayloadTooLarge` for too many values or names, and `InvalidRequest` for NaN,
    Infinity or more than 64 levels.
    """
    if have_too_many_values([raw]):
        raise PayloadTooLarge(f"A JSON document can have at most {JSON_LIMITS}.")
    try:
        value = from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True, cache_mode="keys")
    except ValueError:  # the parser of the standard library says what is wrong, if anything is
        return _sanitize(_loads(raw))
    if _UNSTORABLE_ESCAPE.search(raw) or not _is_shallow_and_finite(value):
        return _sanitize(value)
    return ParsedJson(value, sanitized=False)


def have_too_many_values(documents: Sequence[bytes]) -> bool:
    """Whether JSON documents together have more than `MAX_VALUES` values, or an object more than
    `MAX_NAMES` names, found without creating them.
    """
    return _exceeds_values(documents) or any(map(_exceeds_names, documents))


def may_have_too_many_values(texts: Iterable[str]) -> bool:
    """Whether texts that can be JSON, and can hold JSON as text themselves, may together have more
    than `MAX_VALUES` values. Also counts commas and brackets of prose.
    """
    return sum(text.count(sign) for text in texts for sign in ",[{") > MAX_VALUES


def _exceeds_values(documents: Sequence[bytes]) -> bool:
    if sum(raw.count(sign) for raw in documents for sign in _SIGNS) <= MAX_VALUES:
        return False  # even with the signs in strings
    values = 0
    found = ((raw, token.start()) for raw in documents for token in _TOKEN.finditer(raw))
    for number, (raw, place) in enumerate(found, 1):
        values += raw[place] != _QUOTE
        if values > MAX_VALUES or number > 3 * MAX_VALUES:  # a value and its name are strings
            return True
    return False


def _exceeds_names(raw: bytes) -> bool:
    if raw.count(b":") <= MAX_NAMES:
        return False  # even in one object, with those in strings
    name_counts = [0]
    """Of the containers around the current token, the outermost first."""
    for token in _NAME_TOKEN.finditer(raw):
        sign = token[0]
        if sign == b":":
            name_counts[-1] += 1
            if name_counts[-1] > MAX_NAMES:
                return True
        elif sign in (b"{", b"["):
            name_counts.append(0)
        elif sign in (b"}", b"]") and len(name_counts) > 1:
            name_counts.pop()
    return False


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, for `object_pairs_hook`. Two readers of a repeated name could each read another
    value. Raises `MalformedJson`.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        name = counts.most_common(1)[0][0][:MAX_PATH_LENGTH]
        raise MalformedJson(f"An object has the name {name!r} twice.")
    return value


def _loads(raw: bytes) -> Any:
    try:
        return json.loads(raw, object_pairs_hook=unique_names)
    except UnicodeDecodeError:
        raise MalformedJson("The request body is not valid UTF-8.") from None
    except RecursionError:
        raise _nesting_error("") from None
    except ValueError as error:
        raise MalformedJson(f"The request body is not valid JSON: {error}.") from None


def replace_unstorable(text: str) -> str:
    """Replace each NUL and lone surrogate by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


class _JsonPath(NamedTuple):
    """A path in a JSON document, as a linked list from the innermost key or index outward."""

    parent: _JsonPath | None
    name: str | int

    def __str__(self) -> str:
        names = [str(self.name)[:MAX_PATH_LENGTH]]
        path = self.parent
        while path is not None:
            names.append(str(path.name)[:MAX_PATH_LENGTH])
            path = path.parent
        # The outermost name is the index in the list that `_sanitize` puts around the document.
        return ".".join(reversed(names[:-1]))[:MAX_PATH_LENGTH] or "body"


def _nesting_error(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request body is nested deeper than {MAX_DEPTH} levels.", field=path or "body"
    )


def _is_shallow_and_finite(value: Any) -> bool:
    """Whether `value` has at most `MAX_DEPTH` levels and only finite numbers.

    Goes level by level, which is faster than `_sanitize`: it runs on every request.
    """
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        nested: list[Any] = []
        for node in level:
            for item in _items(node):
                if type(item) in _CONTAINERS:
                    nested.append(item)
                elif type(item) is float and not math.isfinite(item):
                    return False
        if not nested:
            return True
        level = nested
    return False


def _items(node: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", node).values() if type(node) is dict else node


def _sanitize(value: Any) -> ParsedJson:
    """Replace unstorable characters in place. Not recursive."""
    sanitized = False
    root: list[Any] = [value]
    stack: list[tuple[dict[str, Any] | list[Any], int, _JsonPath | None]] = [(root, 0, None)]
    while stack:
        node, depth, path = stack.pop()
        if depth > MAX_DEPTH:
            raise _nesting_error(str(path))
        if isinstance(node, dict):
            sanitized = _sanitize_keys(node) or sanitized
            items: list[tuple[Any, Any]] = list(node.items())
        else:
            items = list(enumerate(node))
        for key, item in items:
            if isinstance(item, str):
                if _UNSTORABLE.search(item):
                    cast("dict[Any, Any]", node)[key] = replace_unstorable(item)
                    sanitized = True
            elif isinstance(item, dict | list):
                nested = cast("dict[str, Any] | list[Any]", item)
                stack.append((nested, depth + 1, _JsonPath(path, key)))
            elif isinstance(item, float) and not math.isfinite(item):
                raise InvalidRequest("The number must be finite.", field=str(_JsonPath(path, key)))
    return ParsedJson(root[0], sanitized)


def _sanitize_keys(node: dict[str, Any]) -> bool:
    """Sanitize the keys of an object in place and keep their order. Keys that become equal get a
    suffix, so that no entry is lost.
    """
    if not any(_UNSTORABLE.search(key) for key in node):
        return False
    items = list(node.items())
    node.clear()
    for key, item in items:
        name = replace_unstorable(key)
        while name in node:
            name += "\ufffd"
        node[name] = item
    return True
