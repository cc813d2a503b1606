"""One function for calls to addresses that a tenant or the operator chooses. The other side decides
neither how long a call takes nor how much of its answer is read.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import h11
import httpx2

from memory_api.core.errors import HanseiError
from memory_api.core.private_addresses import resolve_url

MAX_HEAD_BYTES = 64 * 1024
"""At most this much is read without a body."""
READ_BYTES = 16 * 1024
MAX_PROVIDER_BYTES = 16 * 1024 * 1024
"""Of an answer of a model provider, which can hold 128 vectors as text."""


class CallFailed(HanseiError):
    """The other side cannot be reached, or its answer is late, too large or not HTTP."""


@dataclass(frozen=True)
class OutgoingCall:
    """`seconds` limits the whole call, from the look-up of the host to the last byte. Without
    `max_bytes`, no body is read.
    """

    method: str
    url: str
    allow_private: bool
    seconds: float = 10.0
    max_bytes: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content: bytes = b""
    tls: ssl.SSLContext | None = None
    """Unset: the certificate authorities of the system."""


@dataclass(frozen=True)
class OutgoingAnswer:
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


async def send_call(call: OutgoingCall) -> OutgoingAnswer:
    """Send a request to the address that was checked. No redirect is followed, and nothing is
    decompressed. Raises `AddressRefused` and `CallFailed`.
    """
    try:
        async with asyncio.timeout(call.seconds):
            return await _send(call)
    except TimeoutError as error:
        raise CallFailed(f"No answer within {call.seconds:g} seconds.") from error
    except (OSError, h11.ProtocolError) as error:
        raise CallFailed(f"No answer: {type(error).__name__}.") from error


async def _send(call: OutgoingCall) -> OutgoingAnswer:
    url = await resolve_url(call.url, allow_private=call.allow_private)
    is_tls = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.address,
        url.port,
        limit=READ_BYTES,
        ssl=(call.tls or _tls()) if is_tls else None,
        server_hostname=url.host if is_tls else None,
    )
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        headers = {
            "Host": url.host_header,
            "User-Agent": "hansei",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "Content-Length": str(len(call.content)),
            **call.headers,
        }
        request = h11.Request(method=call.method, target=url.target, headers=list(headers.items()))
        for event in (request, h11.Data(data=call.content), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        return await _read_answer(connection, reader, call.max_bytes)
    finally:
        writer.transport.abort()


async def _read_answer(
    connection: h11.Connection, reader: asyncio.StreamReader, max_bytes: int
) -> OutgoingAnswer:
    """Informational responses, headers and chunk sizes count too."""
    status, body, unread = 0, bytearray(), MAX_HEAD_BYTES + max_bytes
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(READ_BYTES)
            unread -= len(data)
            if unread < 0:
                raise CallFailed(f"The answer has more than {max_bytes or MAX_HEAD_BYTES:,} bytes.")
            connection.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
            if not max_bytes:
                return OutgoingAnswer(status, b"")
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return OutgoingAnswer(status, bytes(body))
        elif not isinstance(event, h11.InformationalResponse):
            raise CallFailed("The answer is incomplete.")


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes tens of milliseconds."""
    return ssl.create_default_context()


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for part in self._stream:
            count += len(part)
            if count > MAX_PROVIDER_BYTES:
                raise httpx2.ReadError(f"The answer has more than {MAX_PROVIDER_BYTES:,} bytes.")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _ask_uncompressed(request: httpx2.Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _limit_answer(response: httpx2.Response) -> None:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise httpx2.DecodingError("The answer is compressed, which was not asked for.")
    response.stream = _LimitedStream(cast("httpx2.AsyncByteStream", response.stream))


PROVIDER_CLIENT: dict[str, Any] = {
    "follow_redirects": False,
    "event_hooks": {"request": [_ask_uncompressed], "response": [_limit_answer]},
}
"""Options of the HTTP client in the SDK of a model provider. Its caller sets the deadline."""
