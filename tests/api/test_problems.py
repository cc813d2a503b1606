"""One shape for every error, wherever it comes from; health; request ids."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import text
from structlog.testing import capture_logs

from memory_api.api.problems import LoggedErrors
from memory_api.auth.identity import generate_key
from memory_api.bootstrap import open_runtime
from memory_api.core.settings import Settings
from memory_api.main import create_app
from memory_api.runtime import Runtime
from tests.support.api_calls import JSON, trace
from tests.support.cases import each_case
from tests.support.problems import assert_problem

KEY = {"Authorization": f"Bearer {generate_key(UUID(int=9)).text}"}


def client(app: FastAPI) -> AsyncClient:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return AsyncClient(transport=transport, base_url="http://hansei")


@each_case(
    "path",
    [
        *("/nothing", "/api", "/api/v1", "/api/v2/traces", "/docs/assets/none.js"),
        *("/docs/assets/../../etc/passwd", "/api/v1/traces/x/y/z", "/%00", "/\u65e5"),
    ],
)
async def test_unknown_path_is_404(http: AsyncClient, path: str) -> None:
    assert_problem(await http.get(path), 404, "not_found")


async def test_client_of_another_major_version_gets_one_clear_line(api, http: AsyncClient) -> None:
    for client in (api, http):
        problem = assert_problem(await client.post("/api/v2/traces", json={}), 404, "not_found")
        assert "has version 1 of the API, and the client asks for version 2." in problem["detail"]


@each_case(("method", "path", "allowed"), [
        ("PUT", "/api/v1/traces", {"GET", "POST"}),
        ("DELETE", "/api/v1/search", {"POST"}),
        ("GET", "/api/v1/reflections/generate", {"POST"}),
        ("POST", "/health", {"GET"}),
        ("OPTIONS", "/api/v1/memories", {"GET", "POST"}),
        ("TRACE", "/api/v1/runs", {"GET"}),
        ("POST", "/api/v1/memories/00000000-0000-0000-0000-000000000001",
         {"GET", "PATCH", "DELETE"}),
    ])  # fmt: skip
async def test_wrong_method_is_405_with_allowed_methods(http, method, path, allowed) -> None:
    answer = await http.request(method, path)
    assert_problem(answer, 405, "method_not_allowed")
    told = {name.strip() for name in answer.headers["allow"].split(",")}
    assert told
    assert told <= allowed | {"HEAD"}


async def test_error_for_unknown_field_lists_known_fields(api: AsyncClient) -> None:
    answer = await api.post("/api/v1/search", json={"query": "refund"})
    assert_problem(answer, 422, "invalid")
    said = {one["field"]: one["message"] for one in answer.json()["errors"]}
    assert said["query"] == "Unknown field. Did you mean `query_text`?"
    answer = await api.post("/api/v1/search", json={"wording": "refund"})
    (unlike,) = (e["message"] for e in answer.json()["errors"] if e["field"] == "wording")
    assert unlike.startswith("Unknown field. The body may contain: ")
    assert "query_text" in unlike
    nested = {"deltas": [{"type": "ADD", "section": "OTHERS", "wording": "Look first"}]}
    (deeper,) = (await api.post("/api/v1/playbooks/desk/deltas", json=nested)).json()["errors"]
    assert deeper["field"] == "deltas.0.wording"
    assert "may contain" not in deeper["message"], "those would be the names of the whole body"


async def test_unexpected_error_reveals_nothing(runtime: Runtime) -> None:
    app = create_app(runtime.settings, runtime=runtime)

    @app.get("/broken")
    async def broken() -> None:  # pyright: ignore[reportUnusedFunction]
        raise RuntimeError("the password is hunter2")

    with capture_logs() as logged:
        async with app.router.lifespan_context(app), client(app) as http:
            answer = await http.get("/broken")
    body = assert_problem(answer, 500, "internal_error")
    assert "hunter2" not in str(body)
    failure = next(entry for entry in logged if entry["event"] == "request_failed")
    assert failure["request_id"] == answer.headers["x-request-id"]
    assert "hunter2" in str(failure["exc_info"])


async def test_server_does_not_get_an_error_that_was_logged(runtime: Runtime) -> None:
    """Uvicorn would log its traceback a second time. It still gets one that nobody has logged."""
    app = create_app(runtime.settings, runtime=runtime)

    @app.get("/broken")
    async def broken() -> None:  # pyright: ignore[reportUnusedFunction]
        raise RuntimeError("logged")

    async def unlogged(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("not logged")

    with capture_logs() as logged:
        transport = httpx2.ASGITransport(app=LoggedErrors(app))
        async with AsyncClient(transport=transport, base_url="http://hansei") as http:
            assert (await http.get("/broken")).status_code == 500
        transport = httpx2.ASGITransport(app=LoggedErrors(unlogged))
        async with AsyncClient(transport=transport, base_url="http://hansei") as http:
            with pytest.raises(RuntimeError, match="not logged"):
                await http.get("/broken")
    assert [entry["event"] for entry in logged if "exc_info" in entry] == ["request_failed"]


async def test_every_response_has_request_id(http: AsyncClient, api: AsyncClient) -> None:
    answers = [
        await http.get("/health"),
        await http.get("/nothing"),
        await http.get("/api/v1/traces"),
        await api.get("/api/v1/traces"),
        await api.post("/api/v1/traces", content=b"{", headers=JSON),
    ]
    ids = [UUID(answer.headers["x-request-id"]) for answer in answers]
    assert len(set(ids)) == len(answers)


async def test_docs_page_loads_nothing_from_other_hosts(http: AsyncClient) -> None:
    page = await http.get("/docs")
    assert page.status_code == 200
    assert "//" not in page.text.replace("http://hansei", "").replace("// ", "")
    for asset in ("swagger-ui-bundle.js", "swagger-ui.css"):
        assert (await http.get(f"/docs/assets/{asset}")).status_code == 200


async def test_health(http: AsyncClient) -> None:
    assert (await http.get("/health")).json() == {"status": "ok"}
    ready = await http.get("/health/ready")
    assert ready.status_code == 200
    body = ready.json()
    assert body["status"] == "ok"
    assert {name: body[name]["status"] for name in ("database", "queue", "embedder", "model")} == {
        "database": "ok", "queue": "ok", "embedder": "ok", "model": "none",
    }  # fmt: skip


async def unused_port() -> int:
    """A port that nobody listens on."""
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_unreachable_database_is_503(settings: Settings) -> None:
    port = await unused_port()
    app = create_app(settings, f"postgresql://hansei_app:secret@127.0.0.1:{port}/hansei")
    async with app.router.lifespan_context(app), client(app) as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        ready = await http.get("/health/ready")
        assert ready.status_code == 503
        body = ready.json()
        assert body["status"] == "unavailable"
        assert body["database"]["status"] == body["queue"]["status"] == "unavailable"
        assert body["embedder"]["status"] == "ok"
        assert "secret" not in ready.text
        for headers in (KEY, KEY | {"Idempotency-Key": "k"}):
            for answer in (
                await http.get("/api/v1/traces", headers=headers),
                await http.post("/api/v1/traces", json=trace(), headers=headers),
                await http.delete(f"/api/v1/memories/{UUID(int=1)}", headers=headers),
            ):
                assert_problem(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
                assert "secret" not in answer.text
        assert_problem(await http.get("/api/v1/traces"), 401, "unauthorized")


async def test_refused_database_login_is_503(database, settings: Settings) -> None:
    for url in (
        database.server.url("hansei_app", "no_such_database"),
        database.url("hansei_app").replace("hansei_app:", "nobody:"),
    ):
        app = create_app(settings, url)
        async with app.router.lifespan_context(app), client(app) as http:
            answer = await http.get("/api/v1/traces", headers=KEY)
            assert_problem(answer, 503, "unavailable")
            assert (await http.get("/health/ready")).status_code == 503


async def test_connections_closed_by_server_cause_no_error(
    database, settings: Settings, tenant
) -> None:
    async with open_runtime(settings, database.url("hansei_app")) as runtime:
        app = create_app(settings, runtime=runtime)
        async with app.router.lifespan_context(app), client(app) as http:
            async with runtime.sessions.without_tenant() as session:
                pid = await session.scalar(text("select pg_backend_pid()"))
            admin = await asyncpg.connect(database.url("postgres"))
            await admin.execute("select pg_terminate_backend($1::int, 5000::bigint)", pid)
            await admin.close()
            answers = [await http.get("/api/v1/traces", headers=tenant.auth()) for _ in range(3)]
    assert answers[0].status_code in (200, 503)
    assert [answer.status_code for answer in answers[1:]] == [200, 200]
