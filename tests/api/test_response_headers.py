"""Security headers are on every response; large responses do not stay in memory."""

from __future__ import annotations

import json

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from httpx2 import AsyncClient

from memory_api.api import bodies
from memory_api.api.bodies import spool_large_response
from tests.support.api_calls import event, new_trace, send_raw
from tests.support.cases import each_case

EXPECTED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@each_case(
    ("path", "status"),
    [
        ("/health", 200),
        ("/docs", 200),
        ("/openapi.json", 200),
        ("/problems/invalid", 200),
        ("/nowhere", 404),
        ("/api/v1/traces", 401),
    ],
)
async def test_every_response_has_security_headers(
    http: AsyncClient, path: str, status: int
) -> None:
    answer = await http.get(path)
    assert answer.status_code == status
    assert EXPECTED.items() <= dict(answer.headers).items()
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "X-Request-ID" in answer.headers


async def test_unforeseen_error_has_security_headers(
    app: FastAPI, api: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("memory_api.traces.router.queries.list_traces", fail)
    answer = await api.get("/api/v1/traces")
    assert answer.status_code == 500
    assert EXPECTED.items() <= dict(answer.headers).items()
    assert answer.headers["Connection"] == "close", "the server closes it after such an error"
    assert len(answer.headers.get_list("x-request-id")) == 1


async def test_data_of_tenants_is_not_cached(api: AsyncClient, http: AsyncClient) -> None:
    assert (await api.get("/api/v1/traces")).headers["cache-control"] == "no-store"
    assert "cache-control" not in (await http.get("/openapi.json")).headers


async def test_page_of_events_is_limited_by_size(api: AsyncClient) -> None:
    large = [event("x" * 400_000) for _ in range(5)]
    trace_id = await new_trace(api, events=[*large, event("last")])
    page = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert len(page["events"]) == 2
    seen = [e["event_id"] for e in page["events"]]
    while page["next_cursor"]:
        url = f"/api/v1/traces/{trace_id}/events"
        page = (await api.get(url, params={"cursor": page["next_cursor"]})).json()
        assert 1 <= len(page["items"]) <= 3
        seen += [e["event_id"] for e in page["items"]]
    assert seen == [f"e{n:04d}" for n in range(6)]


async def test_large_event_is_sent_from_disk(
    api: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    files: list[int] = []
    write = bodies._write_file

    def recorded(body: bytes) -> object:
        files.append(len(body))
        return write(body)

    monkeypatch.setattr(bodies, "_write_file", recorded)
    body = {"outcome": "failure", "events": [event("ab" * 1_000_000)]}
    stored = await send_raw(api, "/api/v1/traces?reflect=never", json.dumps(body).encode())
    answer = await api.get(f"/api/v1/traces/{stored.json()['trace_id']}")
    assert answer.json()["events"][0]["content"] == "ab" * 1_000_000
    assert files == [len(answer.content)]
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_response_stays_in_memory_without_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bodies, "_write_file", full)
    response = Response(b"x" * 2_000_000)
    assert await spool_large_response(response) is response
    monkeypatch.undo()
    spooled = await spool_large_response(response)
    assert isinstance(spooled, StreamingResponse)
    assert b"".join([bytes(chunk) async for chunk in spooled.body_iterator]) == response.body  # type: ignore[arg-type]
