"""Large responses wait on disk for a slow client, not in memory."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from typing import IO

import structlog
from fastapi import Response
from fastapi.responses import StreamingResponse

MAX_RESPONSE_IN_MEMORY = 1024 * 1024
"""Bytes of a response. A larger one is written to a temporary file and sent from it in chunks."""
CHUNK_BYTES = 64 * 1024

log = structlog.get_logger()


async def spool_large_response(response: Response) -> Response:
    """The response, sent from a temporary file if it is large. The file has no name, so it is gone
    when it is closed. If the disk is full, the response stays in memory.
    """
    body = getattr(response, "body", b"")
    if isinstance(response, StreamingResponse) or len(body) <= MAX_RESPONSE_IN_MEMORY:
        return response
    try:
        file = await asyncio.to_thread(_write_file, bytes(body))
    except OSError as error:
        log.warning("response_not_spooled", error=str(error))
        return response
    spooled = StreamingResponse(
        _read_chunks(file), response.status_code, background=response.background
    )
    spooled.raw_headers = response.raw_headers
    return spooled


def _write_file(body: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the response closes it
    try:
        file.write(body)
        file.seek(0)  # writes what is buffered, and fails if the disk is full
    except OSError:
        file.close()
        raise
    return file


async def _read_chunks(file: IO[bytes]) -> AsyncGenerator[bytes]:
    """The next chunk is read when the client has taken most of the last one."""
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
