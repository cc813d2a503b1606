"""A minimal HTTP/1.1 client, so that the client does not affect the measured times."""

from __future__ import annotations

import asyncio
import json
from typing import Any

LIMIT = 2**23
"""Read buffer in bytes, large enough for a whole playbook."""


class Caller:
    """One persistent connection to the API."""

    def __init__(self, port: int, key: str) -> None:
        self.port, self.key = port, key
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def search(self, body: dict[str, Any]) -> dict[str, Any]:
        """Call `POST /api/v1/search`."""
        return json.loads(await self.ask("POST", "/api/v1/search", json.dumps(body).encode()))

    async def ask(self, method: str, path: str, payload: bytes = b"") -> bytes:
        """Send a request and return the body. Raises RuntimeError if the status is not 200."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=LIMIT)
        reader, writer = self.streams
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: hansei\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key}\r\nContent-Length: {len(payload)}\r\n\r\n"
        )
        writer.write(head.encode() + payload)
        head_bytes = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head_bytes.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if not head_bytes.startswith(b"http/1.1 200"):
            raise RuntimeError(f"{head_bytes.splitlines()[0]!r}: {answer[:300]!r}")
        return answer

    async def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            await self.streams[1].wait_closed()
