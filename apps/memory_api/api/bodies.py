"""Bodies of requests are read within limits. Large bodies of responses wait on disk for a slow
client, not in memory.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import IO, Any

import structlog
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Message

from memory_api.core.errors import HanseiError, PayloadTooLarge
from memory_api.core.json_input import ParsedJson, parse_json

MAX_BODY = 1024 * 1024
"""Bytes of the body of most requests."""
MAX_LARGE_BODY = 32 * 1024 * 1024
"""Bytes of a body with a trace or a whole playbook."""
THREAD_BODY = 256 * 1024
"""A larger body is parsed in a thread, so that the event loop serves other requests meanwhile."""
MAX_DISCARD = 8 * MAX_LARGE_BODY
"""Bytes that are read and dropped after an error, so that the client sees the response."""
MAX_RESPONSE_IN_MEMORY = 1024 * 1024
"""Bytes of a response. A larger one is sent from a temporary file in chunks."""
CHUNK_BYTES = 64 * 1024

log = structlog.get_logger()


class UnsupportedMediaType(HanseiError):
    """The body must be JSON. Send it with `Content-Type: application/json`."""

    status, code = 415, "unsupported_media_type"


class ReadRequest(Request):
    """A request whose body was read. `parsed` is its JSON, None if the body is something else."""

    def __init__(self, request: Request, raw: bytes, parsed: ParsedJson | None = None) -> None:
        super().__init__(request.scope, request.receive)
        self.raw = raw
        self.parsed = parsed
        self.state.sanitized = parsed.sanitized if parsed else False

    async def body(self) -> bytes:
        return self.raw

    async def stream(self) -> AsyncGenerator[bytes]:
        yield self.raw

    async def json(self) -> Any:
        return self.parsed.value if self.parsed else None


class BodyStream:
    """The `receive` of a request, which also knows whether the body has ended, and which reads no
    faster than `wait_for` allows.
    """

    def __init__(self, request: Request) -> None:
        headers = request.headers
        self.receive = request.receive
        self.ended = False
        self.wait_for: Callable[[int], Awaitable[None]] | None = None
        """Called with the bytes of each part."""
        self.expects_continue = "expect" in headers  # the client holds the body back until then
        self.closes_connection = headers.get("connection", "").lower() == "close"

    async def __call__(self) -> Message:
        message = await self.receive()
        self.ended = not message.get("more_body", False)
        if self.wait_for is not None and (part := message.get("body")):
            await self.wait_for(len(part))
        return message

    async def discard(self) -> None:
        """Read the rest of the body if the connection will be closed. Closing it with unread bytes
        would reset it, and a client that is still sending would not see the response.
        """
        size = 0
        must_read = self.closes_connection and not self.expects_continue
        while must_read and not self.ended and size <= MAX_DISCARD:
            size += len((await self()).get("body", b""))


async def read_body(request: Request, limit: int) -> ReadRequest:
    """Read a body of any kind into memory. Raises `PayloadTooLarge` past `limit` bytes."""
    content_length = request.headers.get("content-length", "")
    if content_length.isdecimal() and len(content_length) < 20 and int(content_length) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return ReadRequest(request, b"".join(parts))


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than the limit of {limit:,} bytes.")


async def read_json_body(
    request: Request, limit: int, slot: Callable[[], AbstractAsyncContextManager[None]]
) -> ReadRequest:
    """Read a JSON body of at most `limit` bytes. A large one is parsed inside a `slot`. Raises
    `PayloadTooLarge`, `UnsupportedMediaType` and the errors of `parse_json`.
    """
    whole = await read_body(request, limit)
    if not whole.raw:
        return whole
    kind = media_type(request.headers.get("content-type", ""))
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType
    if len(whole.raw) <= THREAD_BODY:
        return ReadRequest(request, whole.raw, parse_json(whole.raw))
    async with slot():
        return ReadRequest(request, whole.raw, await asyncio.to_thread(parse_json, whole.raw))


def media_type(header: str) -> str:
    """The media type of a Content-Type header, without parameters."""
    return header.partition(";")[0].strip().lower()


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
