"""The route class of the API. In this order: who is calling; what was sent; was it sent before
(`Idempotency-Key`). Only then FastAPI validates, and the route runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ClassVar, cast

import structlog
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.body import Parsed, ReadRequest, Tail, read, read_json
from apps.memory_api.core.errors import Invalid
from apps.memory_api.core.redaction import may_hold_secrets, redact_value
from apps.memory_api.core.schemas import MAX_NAME
from apps.memory_api.deps import bearer, identify, runtime_of
from apps.memory_api.jobs import idempotency
from apps.memory_api.jobs.idempotency import Remembered
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.identity import Identity

log = structlog.get_logger()

WRITING = {"POST", "PUT", "PATCH", "DELETE"}
KEPT_HEADERS = ("location", "etag")
_KEY = re.compile(r"[\x20-\x7e]{1,255}")


class ApiRoute(APIRoute):
    keeps_secrets: ClassVar[bool] = True
    """Traces take out their secrets themselves, and count them."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_json = self.body_field is not None
        parameters = _parameters(self.dependant)

        async def guarded(request: Request) -> Response:
            tail = Tail(request)
            try:
                return await checked(Request(request.scope, tail))
            except Exception:
                await tail.discard()
                raise

        async def checked(request: Request) -> Response:
            runtime = runtime_of(request)
            caller = await identify(request, runtime, await bearer(request))
            _check_query(request, parameters)
            if takes_json:
                request = await read_json(request)
                if not self.keeps_secrets:
                    request.parsed = await asyncio.to_thread(_without_secrets, request)
                    request.state.cleaned = request.parsed is not None and request.parsed.cleaned
                _check_tenant(caller, request)
            key = request.headers.get("idempotency-key")
            if key is None or request.method not in WRITING:
                return await handle(request)
            if not _KEY.fullmatch(key):
                raise Invalid("1 to 255 printable ASCII characters.", field="Idempotency-Key")
            whole = request if isinstance(request, ReadRequest) else await read(request)
            sent = _Sent(runtime, caller, key, whole, self.path_format)
            return await sent.once(handle)

        return guarded


class SecretlessRoute(ApiRoute):
    """What is sent here may be kept: without the secrets in it."""

    keeps_secrets = False


class _Sent:
    """A writing request under an Idempotency-Key. Names are per API key: what one key was answered
    is not shown to another, which may be allowed less."""

    def __init__(
        self, runtime: Runtime, caller: Identity, key: str, request: ReadRequest, path: str
    ) -> None:
        self.runtime = runtime
        self.tenant_id = caller.tenant_id
        self.key = key
        self.request = request
        self.body_hash = hashlib.sha256(request.raw).digest()
        place = f"{caller.key_id} {request.url.path}?{request.url.query}"
        digest = hashlib.sha256(place.encode()).hexdigest()
        self.route = f"{request.method} {path} {digest}"  # short, whatever was asked for

    async def once(self, handle: Callable[[Request], Awaitable[Response]]) -> Response:
        """Do it, or answer what was answered before."""
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            known = await idempotency.begin(session, self.route, self.key, self.body_hash)
        if isinstance(known, Remembered):
            return _replay(known)
        self.request.state.reserved = known
        try:
            async with self._held():
                response = await _whole(await handle(self.request))
            await self._remember(_answer(response))
        except BaseException:
            async with self.runtime.sessions.tenant(self.tenant_id) as session:
                await idempotency.release(session, self.route, self.key)
            raise
        return response

    async def _remember(self, answer: Remembered) -> None:
        """Keep the answer in the transaction of the work, so that there is both or neither; a route
        with transactions of its own has committed them already.
        """
        session: AsyncSession | None = getattr(self.request.state, "session", None)
        if session is None:
            async with self.runtime.sessions.tenant(self.tenant_id) as own:
                await idempotency.remember(own, self.route, self.key, answer)
            return
        await idempotency.remember(session, self.route, self.key, answer)
        stack: AsyncExitStack = self.request.scope["fastapi_function_astack"]
        await stack.aclose()  # commits now: a commit that fails is a failure of the request

    @asynccontextmanager
    async def _held(self) -> AsyncGenerator[None]:
        """Keep the name reserved for as long as the work takes."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(idempotency.LEASE.total_seconds() / 3)
                try:
                    async with self.runtime.sessions.tenant(self.tenant_id) as session:
                        await idempotency.extend(session, self.route, self.key)
                except Exception as error:  # the next beat, or the end of the lease, decides
                    log.warning("idempotency_heartbeat_failed", error=str(error))

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            task.cancel()


async def _whole(response: Response) -> Response:
    """The response with its body at hand: what is streamed is short where a body was kept whole."""
    if not isinstance(response, StreamingResponse):
        return response
    parts = [part async for part in response.body_iterator]
    body = b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts)
    return Response(body, response.status_code, headers=dict(response.headers))


def _answer(response: Response) -> Remembered:
    """What is kept of an answer: no secrets, so the text of a new API key is not shown again."""
    kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    content = json.loads(bytes(response.body)) if response.body else None
    return Remembered(response.status_code, redact_value(content)[0], kept)


def _replay(known: Remembered) -> Response:
    headers = known.headers | {"Idempotency-Replayed": "true"}
    if known.body is None:
        return Response(status_code=known.status, headers=headers)
    return JSONResponse(known.body, status_code=known.status, headers=headers)


def _without_secrets(request: ReadRequest) -> Parsed | None:
    """`cleaned` when there were any."""
    parsed = request.parsed
    escaped = b"\\u" in request.raw  # a word that gives a secret away may hide in escapes
    if parsed is None or not (escaped or may_hold_secrets(request.raw.decode(errors="replace"))):
        return parsed
    value, kinds = redact_value(parsed.value)
    return Parsed(value, parsed.cleaned or bool(kinds))


def _parameters(dependant: Dependant) -> frozenset[str]:
    """The names that a route and what it depends on read from the query."""
    own = frozenset(field.alias for field in dependant.query_params)
    return own.union(*map(_parameters, dependant.dependencies))


def _check_query(request: Request, known: frozenset[str]) -> None:
    """A parameter that nobody reads would be a filter that does not filter. PostgreSQL cannot
    compare with a NUL, so nothing could ever be found by one.
    """
    for name in request.query_params:
        if name not in known:
            told = ", ".join(sorted(known)) or "none"
            raise Invalid(
                f"There is no such parameter here; there are: {told}.", field=name[:MAX_NAME]
            )
    for name, value in (*request.query_params.multi_items(), *request.path_params.items()):
        if "\0" in value:
            raise Invalid("NUL is not allowed here.", field=name)


def _check_tenant(caller: Identity, request: ReadRequest) -> None:
    """Whatever a body is about: a tenant it names must be the key's own."""
    sent = request.parsed.value if request.parsed else None
    if isinstance(sent, dict):
        claimed = cast("dict[str, Any]", sent).get("tenant_id")
        if isinstance(claimed, str):
            caller.check_tenant(claimed)
