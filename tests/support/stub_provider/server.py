"""The HTTP server, in a thread with an event loop of its own, so that sync tests, async tests and
other processes can use it alike and a hanging answer blocks nobody. Bare sockets, because it must
also misbehave on the wire."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from bisect import bisect_left
from collections import deque
from typing import Any, Self

from tests.support.stub_provider.behaviours import (
    BY_NAME,
    Answer,
    Behaviour,
    Fail,
    Hang,
    Reply,
    Reset,
    by_schema,
)
from tests.support.stub_provider.call import Api, Call
from tests.support.stub_provider.shapes import Tokens, body_of, error_of
from tests.support.stub_provider.streams import stream_of

_ROUTES: dict[str, Api] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/embeddings": "embeddings",
    "/messages": "messages",
    "/invoke": "messages",  # Bedrock
    "/models": "models",
}
_CACHE_MINIMUM, _CACHE_STEP = 1024, 128  # tokens, as OpenAI documents its cache


class StubProvider:
    """See the package's docstring. `delay` is how long every answer takes, in seconds."""

    def __init__(self, *, port: int = 0, delay: float = 0.0) -> None:
        self.calls: list[Call] = []
        self.behave: Behaviour = by_schema
        self.delay = delay
        self._port = port
        self._queue: deque[Reply | Behaviour] = deque()
        self._prompts: list[str] = []
        self._marked: set[str] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stub-provider", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the stub provider did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def openai_url(self) -> str:
        """base_url for OpenAI's SDK."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """base_url for Anthropic's SDK, which adds `/v1` itself."""
        return self.url

    def queue(self, *replies: Reply | Behaviour) -> None:
        """What to do with the next calls, one each, in order."""
        self._queue.extend(replies)

    def clear(self) -> None:
        """Forget calls, queue, caches and behaviour."""
        self.calls.clear()
        self._queue.clear()
        self._prompts.clear()
        self._marked.clear()
        self.behave, self.delay = by_schema, 0.0

    # What follows runs in the server's thread.

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        connections: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connections.add(task)
            try:
                await self._connection(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # the client left, or the server stops
            finally:
                connections.discard(task)
                writer.close()
                with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                    await writer.wait_closed()

        server = await asyncio.start_server(connected, "127.0.0.1", self._port)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _head(reader):
            path, headers = head
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            await self._respond(path, headers, body, writer)

    async def _respond(
        self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> None:
        route = path.partition("?")[0]
        api = next((api for suffix, api in _ROUTES.items() if route.endswith(suffix)), None)
        if api is None:
            await _send(writer, 404, '{"error": {"message": "no such route"}}')
            return
        call = Call(len(self.calls) + 1, api, route, headers, json.loads(body or b"{}"))
        self.calls.append(call)
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._act(call, self._decide(call), writer)

    def _decide(self, call: Call) -> Reply:
        if call.api == "messages" and "temperature" in call.body:
            return Fail(400, "invalid_request_error", "temperature: Extra inputs are not permitted")
        chosen = self._queue.popleft() if self._queue else BY_NAME.get(call.model, self.behave)
        return chosen(call) if callable(chosen) else chosen

    async def _act(self, call: Call, reply: Reply, writer: asyncio.StreamWriter) -> None:
        match reply:
            case Answer():
                body = body_of(call, reply, self._tokens(call, reply))
                request_id = f"req_{call.number}"
                if call.body.get("stream"):
                    text, kind = stream_of(call.api, body), "text/event-stream"
                    await _send(writer, 200, text, request_id=request_id, content_type=kind)
                else:
                    await _send(writer, 200, json.dumps(body), request_id=request_id)
            case Fail():
                await _send(
                    writer,
                    reply.status,
                    error_of(call, reply),
                    request_id=f"req_{call.number}",
                    headers=reply.headers,
                    content_type=reply.content_type,
                )
            case Hang():
                await asyncio.sleep(reply.seconds)
                raise ConnectionError
            case Reset():
                if reply.halfway:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
                    writer.write(b'content-length: 1000\r\n\r\n{"id": ')
                    await writer.drain()
                writer.transport.abort()
                raise ConnectionError

    def _tokens(self, call: Call, answer: Answer) -> Tokens:
        """Counts that follow from the texts, prompt caching included: OpenAI's for any long prefix
        seen before, Anthropic's for a prefix that was marked."""
        counted = max(1, len(call.text) // 4)
        size = counted if answer.input_tokens is None else answer.input_tokens
        output = max(1, len(answer.text) // 4)
        output = output if answer.output_tokens is None else answer.output_tokens
        if call.api != "messages":
            cached = self._seen(call.text)
            return Tokens(size, output, min(size, cached))
        marked = _marked_prefix(call.body)
        if marked is None:
            return Tokens(size, output)
        known, share = marked in self._marked, min(size, len(marked) // 4)
        self._marked.add(marked)
        return Tokens(size, output, cached=share) if known else Tokens(size, output, written=share)

    def _seen(self, text: str) -> int:
        at = bisect_left(self._prompts, text)  # in order, so the nearest in wording stand beside it
        beside = self._prompts[max(0, at - 1) : at + 1]
        self._prompts.insert(at, text)
        longest = max((_common(text, other) for other in beside), default=0) // 4
        return longest // _CACHE_STEP * _CACHE_STEP if longest >= _CACHE_MINIMUM else 0


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    lengths = range(1, min(len(one), len(other)) + 1)
    return bisect_left(lengths, True, key=lambda length: one[:length] != other[:length])


def _marked_prefix(body: dict[str, Any]) -> str | None:
    """All text up to the last block with `cache_control`."""
    turns = [block for turn in body["messages"] for block in _blocks(turn["content"])]
    texts: list[str] = []
    marked = None
    for block in [*_blocks(body.get("system") or []), *turns]:
        texts.append(block.get("text", ""))
        if "cache_control" in block:
            marked = "\n".join(texts)
    return marked


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"text": content}] if isinstance(content, str) else content


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """Path and headers of the next request; None when the client is done."""
    first = await reader.readline()
    if not first:
        return None
    headers: dict[str, str] = {}
    while (line := await reader.readline()) not in (b"\r\n", b"\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return first.decode("latin-1").split(" ")[1], headers


async def _send(
    writer: asyncio.StreamWriter,
    status: int,
    body: str,
    *,
    request_id: str = "",
    headers: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> None:
    payload = body.encode()
    lines = {
        "content-type": content_type,
        "content-length": str(len(payload)),
        "x-request-id": request_id,
        "request-id": request_id,
    } | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"HTTP/1.1 {status} Stub\r\n{head}\r\n".encode("latin-1") + payload)
    await writer.drain()
