"""A lean HTTP/1.1 caller: what is measured is the service, not a client."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class Caller:
    """One kept connection to `POST /api/v1/search`."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def search(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises RuntimeError for any other status than 200."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        payload = json.dumps(body).encode()
        writer.write(
            b"POST /api/v1/search HTTP/1.1\r\nHost: hansei\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + self.key.encode() + b"\r\n"
            b"Content-Length: " + str(len(payload)).encode() + b"\r\n\r\n" + payload
        )
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if not head.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{head.splitlines()[0]!r}: {answer[:300]!r}")
        return json.loads(answer)

    async def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            await self.streams[1].wait_closed()
