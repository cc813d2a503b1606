"""A real HTTP service that responds with recorded bodies, records requests, and fails on demand.

It implements the routes that the logic of the client depends on.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text())
KEY = "hsk_stub_key"
Reply = tuple[int, Any]


@dataclass
class Call:
    """A received request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Fault:
    """The failure of the next request: another response, or a lost connection."""

    status: int = 0
    body: bytes = b""
    kind: str = "application/problem+json"
    headers: dict[str, str] = field(default_factory=dict)
    cut: str = ""
    """The connection is cut `before` or `after` the request is processed; no response is sent."""
    delay: float = 0.0


def problem(status: int, code: str = "unavailable", **headers: str) -> Fault:
    body = {
        "type": "about:blank",
        "title": "T",
        "status": status,
        "code": code,
        "detail": "Not now.",
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Fault(status, json.dumps(body).encode(), headers=named)


def page(status: int) -> Fault:
    """The error page of a proxy."""
    text = f"<html><head><title>{status} Proxy Error</title></head><body>…</body></html>"
    return Fault(status, text.encode(), kind="text/html")


class StubService:
    """A stub of the service.

    `pace` runs finish at each poll of the unfinished runs; 0 means no worker. Traces named
    in `no_room` are rejected once, with that code.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: deque[Fault] = deque()
        self.pace = 1000
        self.no_room: dict[str, str] = {}
        self.event_count = 1
        self.traces: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, dict[str, Any]] = {}
        self.polled = threading.Event()
        self._answers: dict[str, Reply] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.service = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def paths(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.calls]

    def respond(self, call: Call) -> Reply:
        if call.path.startswith("/health"):
            return 200, RECORDED["ready" if call.path.endswith("ready") else "health"]
        if call.headers.get("authorization") != f"Bearer {KEY}":
            return refusal(401, "unauthorized", "A valid API key is needed.")
        once = call.headers.get("idempotency-key")
        if once in self._answers:
            return self._answers[once]
        reply = self._route(call)
        if once is not None:
            self._answers[once] = reply
        return reply

    def _route(self, call: Call) -> Reply:
        parts = call.path.removeprefix("/api/v1/").split("/")
        named = f"{call.method} {parts[0]}" + ("/…" if len(parts) > 1 else "")
        own: dict[str, Callable[[Call], Reply]] = {
            "POST traces": self._store_traces,
            "GET runs": self._list_runs,
            "GET runs/…": self._read_run,
            "POST runs/…": self._retry,
            "GET traces": lambda _: (200, listed([RECORDED["trace"]])),
            "GET traces/…": self._read_trace,
            "GET memories": lambda _: (200, listed([RECORDED["memory"]])),
            "GET memories/…": self._read_memory,
            "PATCH memories/…": lambda _: (200, RECORDED["memory"]),
            "DELETE memories/…": lambda _: (204, None),
            "GET playbooks/…": lambda _: (200, listed([])),
            "POST search": lambda _: (200, {"results": [RECORDED["hit"]]}),
            "POST reflections/…": self._reflections,
        }
        return own.get(named, lambda _: refusal(404, "not_found", "Resource not found."))(call)

    def _store_traces(self, call: Call) -> Reply:
        if call.headers["content-type"] != "application/x-ndjson":
            return 201, RECORDED["sent"]
        items = [self._line(n, line) for n, line in enumerate(call.body.split(b"\n"), start=1)]
        return 200, {"items": items, "stored_count": 0, "duplicate_count": 0, "rejected_count": 0}

    def _line(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            trace = json.loads(line)
        except ValueError:
            error = {"code": "malformed_json", "detail": "The body is not valid JSON."}
            return {"line": number, "error": error}
        if not trace.get("events"):
            error = {"code": "invalid", "detail": "At least one is needed.", "field": "events"}
            return {"line": number, "error": error}
        name = trace.get("external_id") or trace.get("id") or uuid4().hex
        if name in self.no_room:
            error = {"code": self.no_room.pop(name), "detail": "Later.", "retry_after": 0}
            return {"line": number, "error": error}
        known = self.traces.get(name)
        if known is None:
            run_id = f"run-{len(self.runs) + 1}"
            self.traces[name] = {**trace, "trace_id": f"trace-{name}", "run_id": run_id}
            self.runs[run_id] = run(run_id, f"trace-{name}", trace)
        stored = self.traces[name]
        sent = {name: stored[name] for name in ("trace_id", "run_id")}
        return {**sent, "duplicate": known is not None, "sanitized": False, "line": number}

    def _list_runs(self, call: Call) -> Reply:
        states = call.query.get("state", [])
        if "queued" in states and "cursor" not in call.query:
            queued = [run for run in self.runs.values() if run["state"] == "queued"]
            for each in queued[: self.pace]:
                finish(each)
                if each["state"] == "done" and each["_teaches"]:
                    self.enqueue_next(each)
            self.polled.set()
        found = [run for run in reversed(self.runs.values()) if run["state"] in states]
        return 200, paged(found, call)

    def enqueue_next(self, first: dict[str, Any]) -> None:
        """The run after a reflection: it applies what the trace `teaches` to a playbook."""
        step = f"{first['id']}-apply"
        first["next_run_id"] = step
        self.runs[step] = first | {
            "id": step, "kind": "apply", "parent_id": first["id"], "state": "queued",
            "next_run_id": None, "result": None, "_ends": "applied",
        }  # fmt: skip

    def _read_run(self, call: Call) -> Reply:
        found = self.runs.get(call.path.rsplit("/", 1)[1])
        if found is None:
            return refusal(404, "not_found", "Resource not found.")
        if found["state"] == "running":
            finish(found)
        elif found["state"] == "queued":
            found["state"] = "running"
        return 200, found

    def _retry(self, call: Call) -> Reply:
        found = self.runs[call.path.split("/")[-2]]
        found["state"] = "queued"
        return 202, found

    def _read_trace(self, call: Call) -> Reply:
        if not call.path.endswith("/events"):
            return 200, RECORDED["trace_detail"] | {"event_count": self.event_count}
        (event,) = RECORDED["trace_detail"]["events"]
        events = [event | {"seq": n, "event_id": f"e{n:04}"} for n in range(self.event_count)]
        return 200, paged(events, call)

    def _read_memory(self, call: Call) -> Reply:
        if call.path.endswith("/revisions"):
            number = RECORDED["revision"]["revision"] + 1
            return 200, paged(
                [RECORDED["revision"] | {"revision": n} for n in range(1, number)], call
            )
        return 200, RECORDED["memory"]

    def _reflections(self, call: Call) -> Reply:
        if call.path.endswith("/query"):
            return 200, RECORDED["lessons"]
        later = call.headers.get("prefer") == "respond-async"
        return (202, RECORDED["accepted"]) if later else (200, RECORDED["generate"])


def refusal(status: int, code: str, detail: str) -> Reply:
    return status, {"type": "about:blank", "title": "T", "status": status, "code": code,
                    "detail": detail}  # fmt: skip


def listed(items: list[Any], end: int = 0, total: int = 0) -> dict[str, Any]:
    return {"items": items, "next_cursor": str(end) if end < total else None}


def paged(items: list[Any], call: Call) -> dict[str, Any]:
    limit, start = int(call.query["limit"][0]), int(call.query.get("cursor", ["0"])[0])
    return listed(items[start : start + limit], start + limit, len(items))


def run(run_id: str, trace_id: str, trace: dict[str, Any]) -> dict[str, Any]:
    """A queued run. `learns` in the trace is its result."""
    ends = trace.get("learns", "stored")
    return RECORDED["run_done"] | {
        "id": run_id, "trace_id": trace_id, "state": "queued", "result": None, "_ends": ends,
        "_teaches": trace.get("teaches"),
        "_importance": trace.get("importance", 0.5),
        "_says": trace.get("says", f"Lesson of {run_id}"),
    }  # fmt: skip


def finish(each: dict[str, Any]) -> None:
    if each["_ends"] == "dead":
        error = {"type": "Boom", "code": "internal_error", "message": "The model is away."}
        each |= {"state": "dead", "attempt_count": 5, "error": error}
        return
    if each["_ends"] == "applied":
        change = {"action": "added", "key": "str-00001", "content": each["_teaches"], "reason": ""}
        merged = {"playbook": "b", "version": 2, "proposal_id": None, "changes": [change]}
        each |= {"state": "done", "result": merged, "_teaches": None}
        return
    nothing = each["_ends"] == "nothing_found"
    taught = {} if nothing else {"reflection_text": each["_says"]}
    each |= {
        "state": "done",
        "result": RECORDED["generate"] | taught | {
            "result": each["_ends"],
            "reflection_id": None if nothing else f"memory-{each['_says']}",
            "strategy_id": None if nothing else f"strategy-{each['_says']}",
            "importance": None if nothing else each["_importance"],
            "strategies": [] if nothing else [
                {"id": f"strategy-{each['_says']}", "new": each["_ends"] == "stored"}
            ],
        },
    }  # fmt: skip


class _Server(ThreadingHTTPServer):
    service: StubService
    daemon_threads = False
    block_on_close = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 10
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def handle_any(self) -> None:
        service = self.server.service
        call = self._read()
        service.calls.append(call)
        fault = service.faults.popleft() if service.faults else None
        if fault is not None and fault.delay:
            time.sleep(fault.delay)
        if fault is not None and fault.cut == "before":
            self.close_connection = True
            return
        if fault is not None and fault.status:
            self._send(fault.status, fault.body, fault.kind, fault.headers)
            return
        status, value = service.respond(call)
        if fault is not None and fault.cut == "after":
            self.close_connection = True
            return
        kind = "application/json" if status < 400 else "application/problem+json"
        public = json.dumps(value, default=str).encode() if value is not None else b""
        self._send(status, public, kind, {"x-request-id": "req-1"})

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any

    def _read(self) -> Call:
        url = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        return Call(self.command, url.path, parse_qs(url.query), headers, body)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"content-type": kind} | headers).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if status != 204 else b"")

    def log_message(self, format: str, *args: object) -> None:
        """Tests read `calls` instead of a log."""
