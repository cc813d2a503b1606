"""A body of NDJSON of any length, in flat memory: its answers wait in a file until it has ended.

They are not sent while the body still comes: a client that reads only when it has sent everything
would wait for us, and we for it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, closing
from typing import IO, TypeVar

import asyncpg
import structlog
from sqlalchemy.exc import SQLAlchemyError

from apps.memory_api.core.away import may_pass
from apps.memory_api.core.errors import Unavailable
from apps.memory_api.traces.accept import Intake
from apps.memory_api.traces.lines import Read, read_lines, refusal, take_lines
from apps.memory_api.traces.ndjson import batches
from apps.memory_api.traces.schemas import LineRefused, TraceAccepted

log = structlog.get_logger()

IN_MEMORY = 1024 * 1024
"""Bytes of answers up to which no file is made."""
PART = 64 * 1024

T = TypeVar("T")

Failed = (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Answer:
    """A `BatchAnswer` as it grows, written as JSON."""

    def __init__(self) -> None:
        self.stored = self.duplicates = self.refused = 0
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed by parts()
        self.file.write(b'{"items":[')

    @property
    def lines(self) -> int:
        return self.stored + self.duplicates + self.refused

    def add(self, item: TraceAccepted | LineRefused) -> None:
        self.file.write((b"," if self.lines else b"") + item.model_dump_json().encode())
        if isinstance(item, LineRefused):
            self.refused += 1
        elif item.duplicate:
            self.duplicates += 1
        else:
            self.stored += 1

    async def parts(self) -> AsyncIterator[bytes]:
        with closing(self.file):
            counts = (
                f'"stored":{self.stored},"duplicates":{self.duplicates},"refused":{self.refused}'
            )
            self.file.write(f"],{counts}}}".encode())
            self.file.seek(0)
            while part := self.file.read(PART):
                yield part


async def take_body(intake: Intake, body: AsyncIterable[bytes]) -> Answer:
    """Store its lines; while some are being stored the next are read. When the database goes away,
    what was stored stays and is answered; every line after it is refused as `unavailable`. Raises
    what went wrong when nothing was stored yet.
    """
    answer, gone = Answer(), False
    try:
        async with aclosing(one_ahead(_read(intake, body))) as ahead:
            async for lines in ahead:
                gone = gone or not await _take(intake, lines, answer)
                if gone:
                    for one in lines:
                        answer.add(LineRefused(line=one.line, error=refusal(Unavailable())))
    except BaseException:
        answer.file.close()
        raise
    return answer


async def _read(intake: Intake, body: AsyncIterable[bytes]) -> AsyncGenerator[list[Read]]:
    async for lines in batches(body):
        yield await read_lines(intake, lines)


async def _take(intake: Intake, lines: Sequence[Read], answer: Answer) -> bool:
    """Store some lines and add their answers. False when the database has gone away."""
    try:
        async with intake.runtime.sessions.tenant(intake.caller.tenant_id) as session:
            items = await take_lines(intake, session, lines)
    except Failed as error:
        if not answer.lines or not may_pass(error):
            raise
        log.warning("lines_refused_from_here", line=lines[0].line, error=str(error))
        return False
    for item in items:
        answer.add(item)
    return True


async def one_ahead(source: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The items of `source`, the next one being made while the caller is at the last. Closes
    `source`.
    """
    async with aclosing(source):
        coming = asyncio.ensure_future(anext(source, None))
        try:
            while (item := await coming) is not None:
                coming = asyncio.ensure_future(anext(source, None))
                yield item
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
