"""Reading NDJSON of any length in flat memory: batches of numbered lines."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

BATCH_LINES = 250
BATCH_BYTES = 8 * 1024 * 1024
MAX_LINE = 16 * 1024 * 1024

Line = tuple[int, bytes | None]
"""Its number from 1, and its bytes: None when it was longer than 16 MiB and was not kept."""


async def batches(body: AsyncIterable[bytes]) -> AsyncIterator[list[Line]]:
    """Up to 250 lines or eight megabytes at a time; empty lines are skipped but counted."""
    held: list[Line] = []
    size, number = 0, 0
    async for line in _lines(body):
        number += 1
        if line is None or line.strip():
            held.append((number, line))
            size += len(line or b"")
        if len(held) >= BATCH_LINES or size >= BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


async def _lines(body: AsyncIterable[bytes]) -> AsyncIterator[bytes | None]:
    line = _Line()
    async for chunk in body:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line.add(end)
            yield line.take()
        line.add(rest)
    if line.size:
        yield line.take()


class _Line:
    """A line as its parts come in. One that grows too long is counted and not kept."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > MAX_LINE:
            self.parts.clear()
        elif part:
            self.parts.append(part)

    def take(self) -> bytes | None:
        whole = b"".join(self.parts) if self.size <= MAX_LINE else None
        self.parts, self.size = [], 0
        return whole
