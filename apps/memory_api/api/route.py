"""The route class of the API. It runs before validation by FastAPI, in this order: authenticate,
read and redact the body, replay the response of a repeated request (`Idempotency-Key`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, cast
from uuid import UUID

import structlog
from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api import idempotency
from memory_api.api.bodies import (
    MAX_BODY,
    MAX_LARGE_BODY,
    BodyStream,
    ReadRequest,
    read_body,
    read_json_body,
    spool_large_response,
)
from memory_api.api.deps import ScopeCheck, api_state_of, authenticate, runtime_of
from memory_api.api.idempotency import StoredResponse
from memory_api.api.problems import merge_responses, problems
from memory_api.auth.identity import Identity, KeyScope
from memory_api.core.after_commit import watch_commits
from memory_api.core.errors import InvalidRequest
from memory_api.core.json_input import ParsedJson
from memory_api.core.log_context import bind_log_context
from memory_api.core.schemas import MAX_NAME_LENGTH, check_field_counts
from memory_api.core.secret_redaction import may_contain_secrets, redact_value
from memory_api.runtime import Runtime

log = structlog.get_logger()

INLINE_REDACTION = 4 * 1024
"""Bytes of the largest body that is searched for secrets in the event loop, in well under 1 ms."""
WRITE_METHODS = {"POST", "PUT", "PATCH", "DELETE"}
REPLAYED_HEADERS = ("location", "etag")
_KEY = re.compile(r"[\x20-\x7e]{1,255}")


_KEY_DESCRIPTION = (
    "Any unique text, such as a UUID. A repeated request with the same key gets the stored "
    "response of the first one. Keys expire after 24 hours."
)
IDEMPOTENCY_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {
        "anyOf": [{"type": "string", "maxLength": 255}, {"type": "null"}],
        "description": _KEY_DESCRIPTION,
        "title": "Idempotency-Key",
    },
    "description": _KEY_DESCRIPTION,
}
"""The header of writing routes in the OpenAPI document. `ApiRoute` reads it, so it is no dependency
of the routes.
"""


class ApiRoute(APIRoute):
    """A route with an API key. It documents the errors that every such route can answer."""

    redacts_body: ClassVar[bool] = False
    """Whether secrets in the body are replaced before validation. Traces do that themselves."""
    max_body: ClassVar[int] = MAX_BODY
    """Bytes of the body."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        is_write = not WRITE_METHODS.isdisjoint(options.get("methods") or ())
        super().__init__(path, endpoint, **options)
        common = problems(401, 403, 422, "rate_limited", 500, 503)
        if is_write:
            common = merge_responses(common, problems("in_progress", "idempotency_key_reused", 413))
            _document_parameter(self, IDEMPOTENCY_KEY_HEADER)
        if self.body_field is not None:
            common = merge_responses(common, problems("malformed_json", 415))
        self.responses = merge_responses(common, self.responses)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        run_route = super().get_route_handler()
        reads_json = self.body_field is not None
        body_model = _body_model(self)
        parameters = _query_parameter_names(self.dependant)
        takes_slot = _takes_slot(self)

        async def handle(request: Request) -> Response:
            request.state.body_model = body_model
            body = BodyStream(request)
            try:
                return await spool_large_response(await run(Request(request.scope, body), body))
            except Exception:
                await body.discard()
                raise

        async def run(request: Request, body: BodyStream) -> Response:
            runtime, state = runtime_of(request), api_state_of(request)
            caller = await authenticate(request)
            body.wait_for = partial(state.body_pace.wait, caller.tenant_id)
            _bind_path_ids(request)
            if request.method in WRITE_METHODS:
                await runtime.upkeep_schedule.mark_active(caller.tenant_id)
            _check_query(request, parameters)
            if reads_json:
                slot = partial(state.write_slots.slot, caller.tenant_id)
                request = await read_json_body(request, self.max_body, slot)
                if body_model is not None and request.parsed is not None:
                    check_field_counts(request.parsed.value, body_model)
                if self.redacts_body:
                    request.parsed = await _redact_secrets(request)
                    request.state.sanitized = (
                        request.parsed is not None and request.parsed.sanitized
                    )
                _check_tenant(caller, request)
            if not takes_slot:
                return await self._run_once(request, runtime, caller, run_route)
            async with state.write_slots.slot(caller.tenant_id):
                return await self._run_once(request, runtime, caller, run_route)

        return handle

    async def _run_once(
        self,
        request: Request,
        runtime: Runtime,
        caller: Identity,
        run_route: Callable[[Request], Awaitable[Response]],
    ) -> Response:
        """Run the route, or replay the response stored under the `Idempotency-Key`."""
        key = request.headers.get("idempotency-key")
        if key is None or request.method not in WRITE_METHODS:
            return await run_route(request)
        if not _KEY.fullmatch(key):
            raise InvalidRequest(
                "`Idempotency-Key` must be 1 to 255 printable ASCII characters.",
                field="Idempotency-Key",
            )
        request_with_body = (
            request if isinstance(request, ReadRequest) else await read_body(request, self.max_body)
        )
        idempotent = _IdempotentRequest(runtime, caller, key, request_with_body, self.path_format)
        return await idempotent.execute_once(run_route)


def _document_parameter(route: APIRoute, parameter: dict[str, Any]) -> None:
    """Add a parameter to the OpenAPI document of the route, once: a router that is included copies
    its routes.
    """
    extra = route.openapi_extra or {}
    known = extra.get("parameters", [])
    if parameter not in known:
        route.openapi_extra = extra | {"parameters": [*known, parameter]}


class LargeBodyRoute(ApiRoute):
    """A route whose body has a trace."""

    max_body = MAX_LARGE_BODY


class RedactingRoute(ApiRoute):
    """A route whose body may be stored: secrets in it are replaced."""

    redacts_body = True


class LargeRedactingRoute(RedactingRoute):
    """A redacting route whose body may have a whole playbook."""

    max_body = MAX_LARGE_BODY


class _IdempotentRequest:
    """A write with an `Idempotency-Key`. Reservations belong to one API key, because another key
    may not be allowed to see the response.
    """

    def __init__(
        self, runtime: Runtime, caller: Identity, key: str, request: ReadRequest, path: str
    ) -> None:
        self.runtime = runtime
        self.tenant_id = caller.tenant_id
        self.key = key
        self.request = request
        self.body_hash = hashlib.sha256(request.raw).digest()
        target = f"{caller.key_id} {request.url.path}?{request.url.query}"
        digest = hashlib.sha256(target.encode()).hexdigest()
        self.route = f"{request.method} {path} {digest}"  # bounded length for any URL

    async def execute_once(self, run_route: Callable[[Request], Awaitable[Response]]) -> Response:
        """Run the route, or replay the response stored under this key."""
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            reserved = await idempotency.reserve_key(session, self.route, self.key, self.body_hash)
        if isinstance(reserved, StoredResponse):
            return _replay(reserved)
        self.request.state.reserved = reserved
        with watch_commits() as commits:
            try:
                async with self._extend_periodically():
                    response = await _collect_body(await run_route(self.request))
                await self._store(_to_stored_response(response))
            except BaseException:
                async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
                    if commits.may_have_committed:
                        await idempotency.set_lease(session, self.route, self.key, timedelta())
                    else:
                        await idempotency.release_key(session, self.route, self.key)
                raise
        return response

    async def _store(self, response: StoredResponse) -> None:
        """Store the response in the transaction of the route, so that both or neither are
        committed. A route that opens its own transactions has committed them already.
        """
        session: AsyncSession | None = getattr(self.request.state, "session", None)
        if session is None:
            async with self.runtime.sessions.for_tenant(self.tenant_id) as own:
                await idempotency.store_response(own, self.route, self.key, response)
            return
        await idempotency.store_response(session, self.route, self.key, response)
        transaction: AsyncExitStack = self.request.state.transaction
        await transaction.aclose()  # commits now, so that a failing commit fails the request

    @asynccontextmanager
    async def _extend_periodically(self) -> AsyncGenerator[None]:
        """Extend the reservation while the route runs."""

        async def extend() -> None:
            while True:
                await asyncio.sleep(idempotency.LEASE.total_seconds() / 3)
                try:
                    async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
                        await idempotency.set_lease(session, self.route, self.key)
                except Exception as error:  # the next extension may succeed before the lease ends
                    log.warning("idempotency_reservation_not_extended", error=str(error))

        task = asyncio.create_task(extend())
        try:
            yield
        finally:
            task.cancel()


def _takes_slot(route: APIRoute) -> bool:
    """Whether a route writes and does not wait for a model, as routes with `Prefer` do."""
    dependants = [route.dependant]
    for dependant in dependants:
        dependants += dependant.dependencies
    headers = {field.alias for dependant in dependants for field in dependant.header_params}
    checks = [each.call for each in dependants if isinstance(each.call, ScopeCheck)]
    return "Prefer" not in headers and any(each.scope is not KeyScope.READ for each in checks)


def _bind_path_ids(request: Request) -> None:
    """Add the trace or run in the path to the log lines, if it is an ID."""
    for name in ("trace_id", "run_id"):
        value = request.path_params.get(name)
        with suppress(ValueError):
            bind_log_context(**{name: UUID(value) if value else None})


async def _collect_body(response: Response) -> Response:
    """The response with its whole body. Streamed responses of this API are short."""
    if not isinstance(response, StreamingResponse):
        return response
    parts = [part async for part in response.body_iterator]
    body = b"".join(part.encode() if isinstance(part, str) else bytes(part) for part in parts)
    return Response(body, response.status_code, headers=dict(response.headers))


def _to_stored_response(response: Response) -> StoredResponse:
    """What is stored of a response. Secrets are redacted: a replay does not show a new API key."""
    headers = {
        name: response.headers[name] for name in REPLAYED_HEADERS if name in response.headers
    }
    content = json.loads(bytes(response.body)) if response.body else None
    return StoredResponse(response.status_code, redact_value(content)[0], headers)


def _replay(stored: StoredResponse) -> Response:
    headers = stored.headers | {"Idempotency-Replayed": "true"}
    if stored.body is None:
        return Response(status_code=stored.status, headers=headers)
    return JSONResponse(stored.body, status_code=stored.status, headers=headers)


async def _redact_secrets(request: ReadRequest) -> ParsedJson | None:
    """The body with its secrets replaced. `sanitized` is true if there were any. A small body is
    searched in the event loop: a thread takes longer to start.
    """
    if len(request.raw) <= INLINE_REDACTION:
        return _find_secrets(request)
    return await asyncio.to_thread(_find_secrets, request)


def _find_secrets(request: ReadRequest) -> ParsedJson | None:
    parsed = request.parsed
    has_escapes = b"\\u" in request.raw  # an escape may hide the word that marks a secret
    if parsed is None or not (
        has_escapes or may_contain_secrets(request.raw.decode(errors="replace"))
    ):
        return parsed
    value, kinds = redact_value(parsed.value)
    return ParsedJson(value, parsed.sanitized or bool(kinds))


def _body_model(route: APIRoute) -> type[BaseModel] | None:
    field = route.body_field
    model = field.field_info.annotation if field is not None else None
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


def _query_parameter_names(dependant: Dependant) -> frozenset[str]:
    """The query parameters of a route and of its dependencies."""
    names = frozenset(field.alias for field in dependant.query_params)
    return names.union(*map(_query_parameter_names, dependant.dependencies))


def _check_query(request: Request, known: frozenset[str]) -> None:
    """Raises `InvalidRequest` for an unknown parameter, which would be a filter without effect, and
    for NUL.
    """
    for name in request.query_params:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(
                f"Unknown query parameter `{name[:MAX_NAME_LENGTH]}`. This route accepts: {names}.",
                field=name[:MAX_NAME_LENGTH],
            )
    refuse_nul(request)


def refuse_nul(request: Request) -> None:
    """Raises `InvalidRequest` for NUL in the URL, which PostgreSQL cannot compare with."""
    for name, value in (*request.query_params.multi_items(), *request.path_params.items()):
        if "\0" in value:
            raise InvalidRequest("The NUL character is not allowed.", field=name)


def _check_tenant(caller: Identity, request: ReadRequest) -> None:
    """Raises `Forbidden` if the body names another tenant than the key's."""
    body = request.parsed.value if request.parsed else None
    if isinstance(body, dict):
        tenant_id = cast("dict[str, Any]", body).get("tenant_id")
        if isinstance(tenant_id, str):
            caller.require_tenant(tenant_id)
