"""Headers of the proxies in front of the service."""

from __future__ import annotations

import os

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

PEER = "hansei.peer"
"""The field of the scope with the address at the other end of the connection."""


class ProxyHeaders:
    """Takes the address and the scheme of a client from the headers of a proxy that
    `FORWARDED_ALLOW_IPS` names (default: 127.0.0.1), and remembers the address of the proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        trusted = os.environ.get("FORWARDED_ALLOW_IPS", "127.0.0.1")
        self._app: ASGIApp = ProxyHeadersMiddleware(app, trusted)  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if client:
            scope[PEER] = client[0]
        await self._app(scope, receive, send)
