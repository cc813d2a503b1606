"""`/mcp`: the MCP server of the client package over streamable HTTP, without sessions.

A request needs an API key. The tools call the routes of this process with the key of the request,
so the tenant, the key scopes and the rate limits are those of the HTTP API.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import httpx2
from fastapi import FastAPI, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hansei.async_client import AsyncHansei
from memory_api.api.bodies import MAX_BODY, BodyStream, read_body
from memory_api.api.deps import api_state_of, authenticate
from memory_api.core.errors import NotFound, PayloadTooLarge, Unauthorized
from memory_api.core.json_input import JSON_LIMITS, have_too_many_values

PATH = "/mcp"


class McpEndpoint:
    """The ASGI application of `/mcp`. The MCP library loads with the first request: it takes half a
    second, and most processes never need it.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._lock = asyncio.Lock()
        self._server: ASGIApp | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises `Unauthorized` without a valid API key, `PayloadTooLarge`, and `NotFound` if the
        extra `mcp` is not installed. The MCP library has no limits: it would read a body of a
        gigabyte.
        """
        body = BodyStream(Request(scope, receive))
        request = Request(scope, body)
        try:
            caller = await authenticate(request)
            body.wait_for = partial(api_state_of(request).body_pace.wait, caller.tenant_id)
            read = await read_body(request, MAX_BODY)
            if have_too_many_values([read.raw]):
                raise PayloadTooLarge(f"A message can have at most {JSON_LIMITS}.")
        except Exception:
            await body.discard()
            raise
        server = await self._start()
        await server(scope, _replay(read.raw, receive), send)

    async def _start(self) -> ASGIApp:
        if importlib.util.find_spec("mcp") is None:
            raise NotFound("This service has no MCP endpoint. Install hansei-server[mcp].")
        async with self._lock:
            if self._server is None:
                started: asyncio.Future[ASGIApp] = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._run(started))
                self._server = await started
            return self._server

    async def _run(self, started: asyncio.Future[ASGIApp]) -> None:
        """Holds the session manager open. Its task group must be entered and left by one task."""
        try:
            async with open_mcp_app(self._app) as server:
                started.set_result(server)
                await self._stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await self._task


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that was read, and then what else the client sends."""
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay


@asynccontextmanager
async def open_mcp_app(app: FastAPI) -> AsyncGenerator[ASGIApp]:
    # Loaded on demand, see `McpEndpoint`.
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp  # noqa: PLC0415
    from mcp.server.transport_security import TransportSecuritySettings  # noqa: PLC0415

    from hansei.mcp_server import create_mcp_server  # noqa: PLC0415

    @asynccontextmanager
    async def connect(headers: Mapping[str, str] | None) -> AsyncGenerator[AsyncHansei]:
        scheme, _, key = (headers or {}).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthorized
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport) as http:
            yield AsyncHansei("http://localhost", key, http_client=http)

    server = create_mcp_server(connect)
    server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        # The key of each request replaces the check of Host and Origin: a web page has no key.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with server.session_manager.run():
        yield StreamableHTTPASGIApp(server.session_manager)


def install_mcp(app: FastAPI) -> McpEndpoint:
    endpoint = McpEndpoint(app)
    app.router.routes.append(Route(PATH, endpoint, methods=["POST"], include_in_schema=False))
    return endpoint
