"""Lists in a model's answer, which may be lists, printed lists or texts with commas. No I/O."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any, cast

MAX_WORDS = 10
MAX_WORD_LENGTH = 64


def clean_words(value: Any) -> list[str]:
    """Tags or keywords, each once and shortened: an index of the database has no long ones."""
    words = (item.strip(" #\"'")[:MAX_WORD_LENGTH].strip() for item in to_list(value))
    return list(dict.fromkeys(word for word in words if word))[:MAX_WORDS]


def to_list(value: Any) -> list[str]:
    """The texts of a list, of a printed Python list, or of a text with commas."""
    if isinstance(value, str):
        return to_list(_parse_printed_list(value))
    if isinstance(value, list | tuple):
        items = cast("Iterable[Any]", value)
        return [str(item) for item in items if isinstance(item, str | int | float)]
    return []


def _parse_printed_list(text: str) -> list[Any]:
    if text.strip().startswith("["):
        try:
            value: Any = ast.literal_eval(text.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        if isinstance(value, list):
            return cast("list[Any]", value)
    return [part for part in re.split("[,、，]", text.strip(" []")) if part.strip()]
