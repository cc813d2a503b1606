"""What the network adds: answers reach a client that is still sending, and half a request does
nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from httpx2 import AsyncClient

from memory_api.api.bodies import MAX_LARGE_BODY
from tests.support.api_calls import JSON, NDJSON, count, ndjson, trace
from tests.support.problems import assert_problem

CHUNK = b"x" * 65_536


class Raw:
    """A connection that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, auth: dict[str, str], **headers: object) -> None:
        fields = {"Host": "h", **auth, **{k.replace("_", "-"): v for k, v in headers.items()}}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"POST /api/v1/traces HTTP/1.1\r\n{lines}\r\n".encode())

    async def answer(self) -> tuple[int, dict[str, object]]:
        """Status and problem document of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(li for li in head.split("\r\n") if li.startswith("content-length"))
        body = await self.reader.readexactly(int(length.split(":")[1]))
        return int(head.split(" ")[1]), json.loads(body)


@pytest.fixture
async def raw(live: str):
    parts = urlsplit(live)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    yield Raw(reader, writer)
    writer.close()


async def test_too_large_content_length_is_413_before_body_is_read(raw: Raw, tenant) -> None:
    await raw.head(
        tenant.auth(), Content_Type="application/json", Content_Length=MAX_LARGE_BODY + 1
    )
    status, body = await raw.answer()
    assert (status, body["code"]) == (413, "too_large")


async def test_too_large_chunked_body_is_413_while_it_is_read(raw: Raw, tenant) -> None:
    await raw.head(tenant.auth(), Content_Type="application/json", Transfer_Encoding="chunked")
    for _ in range(MAX_LARGE_BODY // len(CHUNK) + 1):
        await raw.send(f"{len(CHUNK):x}\r\n".encode() + CHUNK + b"\r\n")
    status, body = await raw.answer()
    assert (status, body["code"]) == (413, "too_large")


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
@pytest.mark.parametrize(
    ("scope", "kind", "expected"),
    [
        ("write", "application/json", 413),
        (None, "application/json", 401),
        ("read", "application/x-ndjson", 403),
    ],
)
async def test_client_that_sends_everything_first_gets_response(
    live, tenant, connection: str, scope, kind: str, expected: int
) -> None:
    """As most HTTP libraries do: the answer is there although nobody read the rest of the body."""

    def post() -> tuple[int, str, bytes]:
        headers = {"Content-Type": kind, "Connection": connection}
        headers |= tenant.auth(scope) if scope else {}
        with closing(http.client.HTTPConnection(urlsplit(live).netloc, timeout=30)) as client:
            client.request("POST", "/api/v1/traces", b"x" * (MAX_LARGE_BODY + 1), headers)
            with client.getresponse() as answer:
                return answer.status, answer.getheader("content-type", ""), answer.read()

    status, kind, body = await asyncio.to_thread(post)
    assert status == expected
    assert kind == "application/problem+json"
    assert json.loads(body)["status"] == status


async def test_largest_allowed_body_is_read(live: str, tenant) -> None:
    body = json.dumps(trace(task_goal="x")).encode()
    body = body[:-1] + b" " * (MAX_LARGE_BODY - len(body)) + b"}"
    async with AsyncClient(base_url=live, headers=tenant.auth() | JSON) as api:
        answer = await api.post("/api/v1/traces", content=body)
        assert answer.status_code == 201
        answer = await api.post("/api/v1/traces", content=body + b" ")
        assert_problem(answer, 413, "too_large")
        assert (await api.get("/api/v1/traces")).status_code == 200


async def test_incomplete_body_stores_nothing(raw: Raw, tenant, runtime) -> None:
    body = json.dumps(trace()).encode()
    await raw.head(tenant.auth(), Content_Type="application/json", Content_Length=len(body))
    await raw.send(body[:-5])
    raw.writer.close()
    await raw.writer.wait_closed()
    await asyncio.sleep(0.2)
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"], rows["runs"]) == (0, 0, 0)


async def test_complete_lines_of_interrupted_body_are_stored_in_batches(
    raw: Raw, tenant, runtime
) -> None:
    """A connection that breaks in the second 250: the first are stored, the rest not at all."""
    body = ndjson(trace(external_id=f"b-{n}") for n in range(300))
    kind = NDJSON["Content-Type"]
    await raw.head(tenant.auth(), Content_Type=kind, Content_Length=len(body) + 100)
    await raw.send(body)
    for _ in range(100):
        rows = await count(runtime, tenant.id)
        if rows["traces"]:
            break
        await asyncio.sleep(0.05)
    raw.writer.close()
    await raw.writer.wait_closed()
    await asyncio.sleep(0.3)
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"], rows["runs"]) == (250, 500, 250)


@pytest.mark.parametrize(
    "head",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api/v1/traces HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer \x00\r\n\r\n",
        b"POST /api/v1/traces HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/traces HTTP/1.1\r\nHost: h\r\nContent-Length: many\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
async def test_invalid_http_is_4xx_and_service_survives(raw: Raw, live: str, head) -> None:
    await raw.send(head)
    line = await asyncio.wait_for(raw.reader.readline(), 10)
    assert line.split(b" ")[1].startswith(b"4"), line
    async with AsyncClient(base_url=live) as http:
        assert (await http.get("/health")).status_code == 200
