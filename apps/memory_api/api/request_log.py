"""ASGI middleware around each request: its ID, its span, its metrics and one log line.

The line and the metrics have the template of the route, never the path, the query or the body.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from opentelemetry.trace import Span, SpanKind
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_api.api.deps import OPEN_REQUEST
from memory_api.api.response_headers import complete_headers
from memory_api.auth.identity import Identity
from memory_api.core.ids import new_id
from memory_api.core.log_context import unbind_log_context
from memory_api.core.metrics import HTTP_IN_PROGRESS, count_request
from memory_api.core.tracing import is_tracing, mark_failed, span

log = structlog.get_logger()

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER_METHOD = "other"
NO_ROUTE = "unmatched"
"""The route of a request whose path has none."""
CLIENT_CLOSED_REQUEST = 499
"""Status in log and metrics of a request that ended without a response."""


def route_template(scope: Scope) -> str:
    """The template of the route, such as `/api/v1/traces/{trace_id}`."""
    return str(getattr(scope.get("route"), "path_format", NO_ROUTE))


def caller_ids(scope: Scope) -> dict[str, str]:
    """Tenant and API key of an authenticated request."""
    caller: Identity | None = scope.get("state", {}).get("identity")
    if caller is None:
        return {}
    return {"tenant_id": str(caller.tenant_id), "key_id": str(caller.key_id)}


class RequestLogMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = str(new_id())
        scope["hansei.request_id"] = request_id
        response: dict[str, Any] = {"status": CLIENT_CLOSED_REQUEST}

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                response["status"] = message["status"]
                headers = complete_headers(scope, message["headers"], request_id)
                message["headers"] = headers
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else OTHER_METHOD
        parent = _header(scope, b"traceparent") if is_tracing() else None
        started = time.perf_counter()
        with (
            structlog.contextvars.bound_contextvars(request_id=request_id),
            HTTP_IN_PROGRESS.track_inprogress(),
            span(method, SpanKind.SERVER, parent=parent) as active,
        ):
            try:
                await self.app(scope, receive, send_with_id)
            except Exception:
                response["status"] = 500  # `api/problems.py` answers it outside this middleware
                raise
            finally:
                seconds = time.perf_counter() - started
                _report(scope, method, response["status"], seconds, active)
                if OPEN_REQUEST in scope:
                    scope["app"].state.api.open_requests.remove(scope[OPEN_REQUEST])
                unbind_log_context()


def _report(scope: Scope, method: str, status: int, seconds: float, active: Span) -> None:
    route = route_template(scope)
    count_request(method, route, status, seconds)
    ids = caller_ids(scope)
    log.info(
        "request_finished",
        method=method,
        route=route,
        status=status,
        milliseconds=round(seconds * 1000, 1),
        **ids,
    )
    if is_tracing():
        active.update_name(f"{method} {route}")
        active.set_attribute("http.request.method", method)
        active.set_attribute("http.route", route)
        active.set_attribute("http.response.status_code", status)
        for name, value in ids.items():
            active.set_attribute(f"hansei.{name}", value)
        if status >= 500:
            mark_failed(active, str(status))


def _header(scope: Scope, name: bytes) -> str | None:
    value = next((value for key, value in scope["headers"] if key == name), None)
    return None if value is None else value.decode("latin-1")
