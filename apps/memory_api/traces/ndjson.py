"""Reads NDJSON of any length with constant memory, as batches of numbered lines."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

MAX_BATCH_LINES = 250
MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024

Line = tuple[int, bytes | None]
"""(line number from 1, content). The content is None if the line was longer than
`MAX_LINE_BYTES`.
"""


async def read_batches(body: AsyncIterable[bytes]) -> AsyncIterator[list[Line]]:
    """Batches of at most `MAX_BATCH_LINES`, or of about `MAX_BATCH_BYTES`. Empty lines are skipped
    but counted.
    """
    batch: list[Line] = []
    size, number = 0, 0
    async for line in _lines(body):
        number += 1
        if line is None or line.strip():
            batch.append((number, line))
            size += len(line or b"")
        if len(batch) >= MAX_BATCH_LINES or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _lines(body: AsyncIterable[bytes]) -> AsyncIterator[bytes | None]:
    buffer = _LineBuffer()
    async for chunk in body:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            buffer.add(end)
            yield buffer.take_line()
        buffer.add(rest)
    if buffer.size:
        yield buffer.take_line()


class _LineBuffer:
    """Collects the parts of a line. Discards the content of a line that is too long."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size > MAX_LINE_BYTES:
            self.parts.clear()
        elif part:
            self.parts.append(part)

    def take_line(self) -> bytes | None:
        line = b"".join(self.parts) if self.size <= MAX_LINE_BYTES else None
        self.parts, self.size = [], 0
        return line
