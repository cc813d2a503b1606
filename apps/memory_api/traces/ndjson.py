"""Reading NDJSON of any length in flat memory: batches of numbered lines."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

from apps.memory_api.core.errors import TooLarge

BATCH_LINES = 100
BATCH_BYTES = 8 * 1024 * 1024
MAX_LINE = 16 * 1024 * 1024


async def batches(body: AsyncIterable[bytes]) -> AsyncIterator[list[tuple[int, bytes]]]:
    """Up to a hundred lines or eight megabytes at a time, numbered from 1; empty lines are skipped
    but counted.

    Raises `TooLarge` for a line over 16 MiB.
    """
    held: list[tuple[int, bytes]] = []
    size, number = 0, 0
    async for line in _lines(body):
        number += 1
        if line.strip():
            held.append((number, line))
            size += len(line)
        if len(held) >= BATCH_LINES or size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


async def _lines(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    parts: list[bytes] = []
    waiting = 0
    async for chunk in body:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, waiting = [], 0
        if rest:
            parts.append(rest)
            waiting += len(rest)
        if waiting > MAX_LINE:
            raise TooLarge("A line of NDJSON may have 16 MiB.")
    if parts:
        yield b"".join(parts)
