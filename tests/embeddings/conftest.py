"""A local HTTP server that speaks OpenAI's embeddings, and misbehaves on demand."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

Answer = tuple[int, dict[str, str], Any]
"""Status, headers and body (JSON, or a str sent as it is)."""


@dataclass
class Stub:
    """`faults` are used up one per request: an Answer, or the name of a lie; then it is honest."""

    url: str = ""
    faults: list[Answer | str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    native: int = 24
    """Length of the vectors when the request asks for none."""
    fixed: bool = False
    """The model has one length: asking for another, or at all, is a bad request."""

    def vector(self, text: str, dimensions: int) -> list[float]:
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        # Not of length 1, so that the embedder must see to it.
        return [float(x) for x in np.random.default_rng(seed).normal(size=dimensions)]

    def answer(self, body: dict[str, Any]) -> Answer:
        fault = self.faults.pop(0) if self.faults else ""
        if not isinstance(fault, str):
            return fault
        if fault == "slow":
            time.sleep(1.5)
        if self.fixed and "dimensions" in body:
            message = "this model does not support changing output dimensions"
            return 400, {}, {"error": {"message": message, "type": "invalid_request_error"}}
        length = body.get("dimensions", self.native) + (1 if fault == "wrong dimension" else 0)
        vectors = [self.vector(text, length) for text in body["input"]]
        if fault == "wrong count":
            vectors = vectors[:-1]
        if fault == "zero":
            vectors[0] = [0.0] * length
        if fault in ("nan", "inf"):
            vectors[0][0] = float(fault)
        data = [
            {"object": "embedding", "index": i, "embedding": self._encoded(body, vector)}
            for i, vector in enumerate(vectors)
        ]
        if fault == "same index":
            data = [{**item, "index": 0} for item in data]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        # In reverse: a client must go by the index.
        answer = {"object": "list", "data": data[::-1], "model": body["model"], "usage": usage}
        return 200, {}, answer

    @staticmethod
    def _encoded(body: dict[str, Any], vector: list[float]) -> str | list[float]:
        if body.get("encoding_format") != "base64":
            return vector
        return base64.b64encode(np.array(vector, "<f4").tobytes()).decode()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """Every event that is logged, whatever level the suite has set."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
    with capture_logs() as entries:
        yield entries
    structlog.configure(**before)


@pytest.fixture
def stub() -> Iterator[Stub]:
    state = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append(body)
            state.headers.append({k.lower(): v for k, v in self.headers.items()})
            if self.path != "/v1/embeddings":
                status, headers, answer = 404, {}, {"error": {"message": self.path}}
            else:
                status, headers, answer = state.answer(body)
            raw = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            try:
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client stopped waiting

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
