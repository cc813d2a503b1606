"""Statements that each route executes for its documented example (`statements_per_route.json`).
A change shows in the diff. `HANSEI_RECORD=1` writes the file again.

The tenant is new and most IDs do not exist: the numbers are those of authentication, the first
queries and the writes of the example. BEGIN, COMMIT and ROLLBACK do not count, nor what a process
shares among requests: the length of the queue, and notifications.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import event

from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.rules.test_route_auth import GUARDED, NEEDS, request_of
from tests.support.paths import ROOT

RECORD = ROOT / "tests" / "api" / "statements_per_route.json"
DRIVER_METHODS = ("execute", "executemany", "fetch", "fetchrow", "fetchval")
NOT_COUNTED = re.compile(
    r"(begin|commit|rollback|savepoint|release)\b|.*(\bpg_notify\(|\) queued$)", re.I | re.S
)

recorded: ContextVar[list[str] | None] = ContextVar("recorded", default=None)
"""Of the request that this context handles: other tasks of the process do not count."""


def _record(statement: str) -> None:
    found = recorded.get()
    if found is not None and not NOT_COUNTED.match(statement):
        found.append(statement)


@contextmanager
def query_recorder(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Generator[list[str]]:
    """The statements that SQLAlchemy and the driver execute in this context."""

    def on_execute(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        _record(statement)

    def watch(name: str) -> None:
        original = getattr(asyncpg.Connection, name)

        async def watched(self: Any, query: str, *arguments: Any, **options: Any) -> Any:
            _record(query)
            return await original(self, query, *arguments, **options)

        monkeypatch.setattr(asyncpg.Connection, name, watched)

    for name in DRIVER_METHODS:
        watch(name)
    engine = runtime.sessions.engine.sync_engine
    event.listen(engine, "before_cursor_execute", on_execute)
    statements: list[str] = []
    token = recorded.set(statements)
    try:
        yield statements
    finally:
        recorded.reset(token)
        event.remove(engine, "before_cursor_execute", on_execute)


@pytest.mark.parametrize("route", GUARDED)
async def test_number_of_statements(
    http: AsyncClient,
    app: FastAPI,
    runtime: Runtime,
    tenant: TestTenant,
    monkeypatch: pytest.MonkeyPatch,
    route: str,
) -> None:
    method, path, body = request_of(app, route)
    if route == "POST /api/v1/tenants":
        body = {"name": f"new-{uuid4()}"}  # another test may have created that of the example
    headers = tenant.auth(NEEDS[route])
    with query_recorder(runtime, monkeypatch) as statements:
        answer = await http.request(method, path, json=body, headers=headers)
    found = {"status": answer.status_code, "statements": len(statements)}
    expected = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if os.environ.get("HANSEI_RECORD"):
        RECORD.write_text(json.dumps(expected | {route: found}, indent=1, sort_keys=True) + "\n")
        return
    assert found == expected.get(route), "\n".join(statements)
