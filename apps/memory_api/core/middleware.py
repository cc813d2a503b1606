"""Pure ASGI: every request gets an id that is logged and answered, and one line in the log when it
ends.
"""

from __future__ import annotations

import time
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apps.memory_api.core.ids import new_id

log = structlog.get_logger()


class RequestLog:
    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = str(new_id())
        scope["hansei.request_id"] = request_id
        started = time.perf_counter()
        seen: dict[str, Any] = {"status": 0}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                others = [pair for pair in message["headers"] if pair[0] != b"x-request-id"]
                message["headers"] = [*others, (b"x-request-id", request_id.encode())]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, answer)
            finally:
                log.debug(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=seen["status"],
                    milliseconds=round((time.perf_counter() - started) * 1000, 1),
                )
