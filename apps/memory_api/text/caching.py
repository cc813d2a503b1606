"""Cached properties of texts that are compared again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")

CACHED_TEXTS = 4096
"""Size of each cache: a bullet or a lesson is compared with many others."""
MAX_CACHED_LENGTH = 1_000
"""Characters of a cached text. Seven full caches of English texts of this length take 130 MB, of
real texts with 250 characters on average 50 MB.
"""


def cache_short_texts(function: Callable[[str], T]) -> Callable[[str], T]:
    """Cache the results of a function for the last `CACHED_TEXTS` texts. Those of longer texts than
    `MAX_CACHED_LENGTH` are computed each time, so that the memory of the cache has a limit.
    """
    cached = lru_cache(maxsize=CACHED_TEXTS)(function)

    @wraps(function)
    def call(text: str) -> T:
        return cached(text) if len(text) <= MAX_CACHED_LENGTH else function(text)

    return call
