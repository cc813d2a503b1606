"""Converts values of an agent to text and JSON. No function here raises."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

MAX_CONTENT_CHARACTERS = 1_000_000
"""A longer content of an event is cut. The service accepts lines of 16 MiB."""

_ENCODE_ASCII = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_ENCODE_TEXT = json.JSONEncoder(separators=(", ", ": "), allow_nan=False, ensure_ascii=False).encode


def to_text(value: object) -> str:
    """A string unchanged, None as "", anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else _encode(value, _ENCODE_TEXT)


def to_json(value: object) -> str:
    """JSON in ASCII. Objects that are not JSON become their fields or their `repr`."""
    return _encode(value, _ENCODE_ASCII)


def _encode(value: object, encode: Callable[[Any], str]) -> str:
    """Never raises: the agent's objects may fail in any way, and recording must not stop the agent.
    An object that cannot be read becomes the name of its type.
    """
    try:
        return encode(value)
    except Exception:  # not JSON as it is
        return _encode_plain(value, encode)


def _encode_plain(value: object, encode: Callable[[Any], str]) -> str:
    try:
        return encode(_to_plain(value, 0))
    except Exception:  # its fields or its `repr` cannot be read
        return encode(f"<{type(value).__name__}>")


MAX_DEPTH = 50


def _to_plain(value: object, depth: int) -> Any:
    """The value from JSON types only, with what cannot be represented as its `repr`."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # NaN and infinities are not JSON
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        fields = cast("Mapping[object, object]", value)
        return {str(key): _to_plain(item, depth + 1) for key, item in fields.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_to_plain(item, depth + 1) for item in cast("list[object]", value)]
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)  # pydantic
    if callable(dump):
        return _to_plain(dump(mode="json"), depth + 1)
    return repr(value)
