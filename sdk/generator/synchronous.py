"""The synchronous client, written from the one for asyncio."""

from __future__ import annotations

import re

RULES = (
    (r"class AsyncPager.*", ""),  # a list of the synchronous client is read at once
    (r"AsyncPager\(", "read_page("),
    (r"AsyncPager", "Page"),
    (r"`make client` writes `(\w+)\.py` from this file, without `async` and `await`\.",
     "Generated from its `async` twin by `make client`; do not edit."),
    (r"client for asyncio, `AsyncHansei`, with the resources and methods of `Hansei`",
     "synchronous client, `Hansei`, with the resources and methods of `AsyncHansei_`"),
    (r"The asyncio client", "The synchronous client"),
    (r"Tasks may", "Threads may"),
    (r"an `async ", "a `"),
    (r"async (def|for|with) ", r"\1 "),
    (r"`async (for|with)`", r"`\1`"),
    (r"await ", ""),
    (r"asyncio", "time"),
    (r"Coroutine\[Any, Any, (RawResponse\[Any\])\]", r"\1"),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"aclose", "close"),
    (r"\b(_?)async_", r"\1"),
    (r"StopAsyncIteration", "StopIteration"),
    (r"Async([A-Z]\w*[a-z])\b", r"\1"),
    (r"Hansei_", "Hansei"),
)  # fmt: skip
"""Patterns and what replaces them, in this order."""


def to_synchronous(text: str) -> str:
    """The module without `async` and `await`, with the names of the synchronous client."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return text
