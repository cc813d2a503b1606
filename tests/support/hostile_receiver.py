"""Receivers of webhooks that answer in every bad way."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\n"
READ_BYTES = 65_536
BLOCK = b"x" * READ_BYTES
BOMB = gzip.compress(bytes(13_000_000), 6) * 40


@dataclass
class HostileReceiver:
    """An address, and what clients did there."""

    url: str = ""
    requests: list[bytes] = field(default_factory=list[bytes])
    connected: int = 0
    sent_bytes: int = 0


Send = Callable[[bytes], Awaitable[None]]
Behavior = Callable[[Send], Awaitable[None]]


async def stay_silent(_send: Send) -> None:
    await asyncio.sleep(3600)


async def drip(send: Send) -> None:
    """A byte every 0.3 seconds: a timeout of each read never ends it."""
    for byte in OK + b"\r\n" + BLOCK:
        await send(bytes([byte]))
        await asyncio.sleep(0.3)


async def drip_body(send: Send) -> None:
    await send(OK + b"Content-Length: 300000000\r\n\r\n")
    await drip(send)


async def send_endlessly(send: Send) -> None:
    await send(OK + b"\r\n")
    while True:
        await send(BLOCK)


async def send_300_mb(send: Send) -> None:
    await send(OK + b"Content-Length: 300000000\r\n\r\n")
    for _ in range(300_000_000 // len(BLOCK)):
        await send(BLOCK)


async def send_large_answer(send: Send) -> None:
    """JSON of 60 MB."""
    await send(OK + b"Content-Type: application/json\r\nContent-Length: 60000002\r\n\r\n[")
    for _ in range(60_000_000 // len(BLOCK) + 1):
        await send(b" " * len(BLOCK))


async def send_headers_endlessly(send: Send) -> None:
    await send(OK)
    while True:
        await send((b"X-Header: " + b"x" * 100 + b"\r\n") * 500)


async def inform_endlessly(send: Send) -> None:
    while True:
        await send(b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000)


async def send_gzip_bomb(send: Send) -> None:
    """Half a megabyte that holds 520 MB."""
    await send(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB))
    await send(BOMB)


async def send_deep_json(send: Send) -> None:
    await send(OK + b"Content-Length: 1000000\r\n\r\n" + b"[" * 1_000_000)


async def send_no_http(send: Send) -> None:
    await send(b"220 mail.example ESMTP\r\n")


async def redirect(send: Send) -> None:
    await send(b"HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")


@asynccontextmanager
async def hostile_receiver(behavior: Behavior) -> AsyncIterator[HostileReceiver]:
    made = HostileReceiver()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send(data: bytes) -> None:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # others have their turn
            made.sent_bytes += len(data)

        made.connected += 1
        with suppress(OSError, asyncio.IncompleteReadError):
            made.requests.append(await reader.readuntil(b"\r\n\r\n"))
            hung_up = asyncio.create_task(_read_all(reader))
            answer = asyncio.create_task(behavior(send))
            await asyncio.wait((hung_up, answer), return_when=asyncio.FIRST_COMPLETED)
            for task in (hung_up, answer):
                task.cancel()
            await asyncio.gather(hung_up, answer, return_exceptions=True)
        made.connected -= 1
        writer.transport.abort()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield made


async def _read_all(reader: asyncio.StreamReader) -> None:
    """Ends when the client hangs up."""
    while await reader.read(READ_BYTES):
        pass
