"""HTTP on a connection: a limit for the head of a request, and the headers of proxies in front of
the service.
"""

from __future__ import annotations

import os

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from memory_api.api.deps import PEER

MAX_HEAD_BYTES = 64 * 1024
"""The URL and all headers of a request together."""
_REFUSAL = f"The URL and the headers of a request may have {MAX_HEAD_BYTES:,} bytes.".encode()


class HeadTooLarge(Exception):
    """The head of a request exceeds `MAX_HEAD_BYTES`."""


class HttpProtocol(HttpToolsProtocol):
    """The protocol of uvicorn, which limits neither the number nor the size of headers."""

    _head_bytes = 0
    """Bytes of the URL and of complete headers."""
    _received_bytes = 0
    """Bytes that arrived after the read in which a head began: a header without an end is never
    complete."""
    _is_in_head = False

    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._received_bytes += len(data)
            if self._received_bytes > MAX_HEAD_BYTES:
                self._refuse()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        self._head_bytes = self._received_bytes = 0
        self._is_in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def _count(self, size: int) -> None:
        """Raises `HeadTooLarge`, with which the parser stops and calls `send_400_response`."""
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HeadTooLarge

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _refuse(self) -> None:
        headers = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.logger.warning("request_head_too_large")
        self.transport.write(STATUS_LINE[431] + headers % len(_REFUSAL) + _REFUSAL)
        self.transport.close()


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
