"""Reads the fields of a provider's response. The SDKs do not validate, so each field may be any
JSON value, and its text may be one that cannot be stored.
"""

from __future__ import annotations

from typing import Any, cast

from memory_api.core.json_input import replace_unstorable
from memory_api.llm.errors import LLMServerError

MAX_TOKEN_COUNT = 100_000_000
"""Of one call. No model reads or writes more."""
MAX_NAME_LENGTH = 200


def reported_count(usage: object, name: str) -> int:
    """A token count, 0 to `MAX_TOKEN_COUNT`; 0 if the field is missing or no number."""
    value: object = getattr(usage, name, None)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        return 0
    return int(min(max(value, 0), MAX_TOKEN_COUNT))


def reported_model(response: object, requested: str) -> str:
    """The name of the model, by default the requested one."""
    value: object = getattr(response, "model", None)
    name = replace_unstorable(value)[:MAX_NAME_LENGTH] if isinstance(value, str) else ""
    return name or requested


def reported_text(item: object, name: str) -> str:
    """A text; "" if the field is missing. Raises `LLMServerError` for another value."""
    value: object = getattr(item, name, None)
    if value is None or isinstance(value, str):
        return value or ""
    raise LLMServerError(f"The provider's response has a {type(value).__name__} for its text.")


def reported_items(item: object, name: str) -> list[Any] | None:
    """A list; None if the field is missing or no list."""
    value: object = getattr(item, name, None)
    return cast("list[Any]", value) if isinstance(value, list) else None
