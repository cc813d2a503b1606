"""A server that receives webhooks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Receiver:
    """A server that writes down what it is sent, and answers with these statuses in turn."""

    url: str
    statuses: list[int] = field(default_factory=lambda: [204])
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
            status = made.statuses.pop(0) if len(made.statuses) > 1 else made.statuses[0]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Receiver(f"http://127.0.0.1:{server.server_port}/alerts")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()
