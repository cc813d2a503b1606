"""The caches of properties of texts have a limit in memory."""

from __future__ import annotations

from memory_api.text.caching import MAX_CACHED_LENGTH, cache_short_texts


def test_only_short_texts_are_cached() -> None:
    measured: list[str] = []

    @cache_short_texts
    def measure(text: str) -> int:
        measured.append(text)
        return len(text)

    short, long = "a" * MAX_CACHED_LENGTH, "a" * (MAX_CACHED_LENGTH + 1)
    assert [measure(short), measure(long)] == [measure(short), measure(long)] == [1_000, 1_001]
    assert measured == [short, long, long]
