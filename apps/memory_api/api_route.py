"""The route class of the API: bodies are read by `core.body`, and `Idempotency-Key` is honoured on
every writing route.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from apps.memory_api.core.body import CleanRoute
from apps.memory_api.core.errors import Invalid
from apps.memory_api.deps import bearer, identify, runtime_of
from apps.memory_api.jobs import idempotency
from apps.memory_api.jobs.idempotency import Remembered

WRITING = {"POST", "PUT", "PATCH", "DELETE"}
KEPT_HEADERS = ("location", "etag")


class ApiRoute(CleanRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def once(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            if key is None or request.method not in WRITING:
                return await handle(request)
            if not 1 <= len(key) <= 255:
                raise Invalid("1 to 255 characters are needed.", field="Idempotency-Key")
            return await _once(request, key, handle)

        return once


async def _once(
    request: Request, key: str, handle: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    runtime = runtime_of(request)
    tenant_id: UUID = (await identify(request, runtime, await bearer(request))).tenant_id
    route = f"{request.method} {request.url.path}?{request.url.query}"
    body_hash = hashlib.sha256(await request.body()).digest()
    async with runtime.sessions.tenant(tenant_id) as session:
        known = await idempotency.begin(session, route, key, body_hash)
    if known is not None:
        headers = known.headers | {"Idempotency-Replayed": "true"}
        return JSONResponse(known.body, status_code=known.status, headers=headers)
    try:
        response = await handle(request)
    except BaseException:
        async with runtime.sessions.tenant(tenant_id) as session:
            await idempotency.release(session, route, key)
        raise
    kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    content = json.loads(bytes(response.body)) if response.body else None
    async with runtime.sessions.tenant(tenant_id) as session:
        await idempotency.remember(
            session, route, key, Remembered(response.status_code, content, kept)
        )
    return response
