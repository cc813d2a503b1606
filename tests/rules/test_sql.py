"""SQL lives where STYLE says, and every statement names its tenant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient
from sqlalchemy import event

from memory_api.core.db import Base
from memory_api.maintenance import upkeep
from memory_api.runtime import Runtime
from tests.rules.conftest import (
    MEMORY,
    NOT_FILLED,
    TRACE,
    use_agent,
    use_collection,
    use_console,
    use_playbook,
)
from tests.rules.sources import calls, files, name_of, tree

API = "apps/memory_api/"
TEXT = {
    "core/migrations.py": "one migration at a time: an advisory lock",
    "core/db.py": "defaults of columns",
    "analytics/queries.py": "a statement of questions.sql without the lines of unset filters",
    "demo/dates.py": "the times of all tables, and a temporary table",
    "demo/tenant.py": "the rows of all tables of the demo",
    "commands/doctor.py": "sends statements of doctor.sql",
    "commands/installation_checks.py": "sends statements of doctor.sql",
    "commands/database_checks.py": "sends statements of doctor.sql",
    "maintenance/index_density.py": "asks the catalog whether an index is sparse, and rebuilds it",
    "api/health.py": "select 1, whether the queue can be read, and a write that is rolled back",
}
"""Where SQL is written as text in Python, and why."""

STATEMENTS = {
    "webhooks/outbox.py": "the webhooks of a session that is about to commit",
    "core/db.py": "the time of a transaction",
    "runs/lifecycle.py": "the state machine of a run: each step is one guarded statement",
    "api/idempotency.py": "reserve, remember, release: each is one statement",
    "memories/index/writer.py": "rows, vectors and postings in step",
    "memories/index/scopes.py": "numbers handed out under a lock",
    "traces/storage.py": "a trace and its events",
    "budgets/usage.py": "sums over the views of costs",
    "llm/stored_replies.py": "get, insert and delete the reply of a run",
    "demo/tenant.py": "whether a tenant has data, and the demo's own tenant",
    "commands/tenants.py": "administration as the owner",
    "memories/erasure.py": "tombstones of what it erases",
    "traces/deletion.py": "the episodes of the traces that it deletes",
    "erasures/erase.py": "the rows of one erasure, locked batch by batch",
    "maintenance/pruning.py": "the memories of a report, locked",
    "maintenance/relations.py": "the clusters of a batch",
    "traces/otlp/span_storage.py": "traces and their events from spans",
    "tenants/export.py": "pages of any table, by its primary key",
}
"""Modules beside queries.py that make statements, and why. A router is never one of them."""

MODELS = {m.class_.__name__ for m in Base.registry.mappers if "tenant_id" in m.local_table.c}
TABLES = [table.name for table in Base.metadata.tables.values() if "tenant_id" in table.c]


def modules() -> list[Path]:
    return [path for path in files("apps", suffix=".py") if path.name != "tables.py"]


def imports(path: Path, module: str) -> set[str]:
    return {
        alias.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(module)
        for alias in node.names
    }


def test_sql_text_is_only_in_listed_modules() -> None:
    found = {
        name_of(path).removeprefix(API)
        for path in modules()
        if "text" in imports(path, "sqlalchemy")
    }
    assert found == set(TEXT)


def test_statements_are_only_in_queries_and_listed_modules() -> None:
    verbs = {"select", "insert", "update", "delete"}
    found = {
        name_of(path).removeprefix(API)
        for path in modules()
        if path.name != "queries.py" and verbs & imports(path, "sqlalchemy")
    }
    assert found == set(STATEMENTS)


def test_sdk_contains_no_sql() -> None:
    for path in files("sdk", suffix=".py"):
        assert not imports(path, "sqlalchemy"), name_of(path)
        assert not imports(path, "asyncpg"), name_of(path)


def test_only_session_edge_commits() -> None:
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and node.attr in ("commit", "rollback"):
                pytest.fail(f"{name_of(path)}:{node.lineno} {node.attr}")


def test_functions_with_tenant_statements_filter_by_tenant() -> None:
    checked = 0
    for path in modules():
        for function in ast.walk(tree(path)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            made = [c for verb in ("select", "update", "delete") for c in calls(function, verb)]
            named = {n.id for c in made for n in ast.walk(c) if isinstance(n, ast.Name)}
            if named & MODELS:
                checked += 1
                assert "tenant_id" in ast.unparse(function), f"{name_of(path)}: {function.name}"
    assert checked > 20


@contextmanager
def listening(runtime: Runtime) -> Iterator[list[str]]:
    """The statements the service really sends."""
    sent: list[str] = []
    drivers: set[Any] = set()

    def hear(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    def hear_driver(record: Any) -> None:
        sent.append(record.query)

    def watch(connection: Any, _record: Any, _proxy: Any) -> None:
        drivers.add(connection.driver_connection)
        connection.driver_connection.add_query_logger(hear_driver)

    engine = runtime.sessions.engine.sync_engine
    event.listen(engine, "before_cursor_execute", hear)
    event.listen(engine, "checkout", watch)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", hear)
        event.remove(engine, "checkout", watch)
        for driver in drivers:
            driver.remove_query_logger(hear_driver)


@pytest.mark.usefixtures("upkeep_of_test_tenants")
async def test_every_statement_sent_names_the_tenant_of_every_table(
    runtime: Runtime,
    worker_runtime: Runtime,
    app: FastAPI,
    api: AsyncClient,
    tenant: Any,
    drain: Any,
) -> None:
    with listening(runtime) as sent:
        trace = (await api.post("/api/v1/traces", json=TRACE)).json()
        memory = (await api.post("/api/v1/memories", json=MEMORY)).json()
        await drain(tenant.id)
        path = f"/api/v1/memories/{memory['id']}"
        await api.patch(path, json={"content": "Other words", "reason": "clearer"})
        for read in ("", "/revisions", "/links"):
            (await api.get(path + read)).raise_for_status()
        await api.post("/api/v1/search", json={"query_text": "report", "tags": ["paging"]})
        await api.post("/api/v1/reflections/query", json={"query_text": "", "tags": ["paging"]})
        for read in (
            "traces",
            f"traces/{trace['trace_id']}",
            "memories?tag=x",
            "runs",
            "keys",
            "budgets",
            "usage",
        ):
            (await api.get(f"/api/v1/{read}")).raise_for_status()
        await api.delete(path)
        await use_playbook(api)
        await use_collection(api)
        await use_console(api, tenant.keys["write"])
        await use_agent(api, partial(drain, tenant.id))
        await run_upkeep(worker_runtime, tenant.id, drain)
    touched: set[str] = set()
    for statement in sent:
        flat = " ".join(statement.split()).lower()
        used = re.findall(rf"\b(?:from|join|into|update) (?:only )?({'|'.join(TABLES)})\b", flat)
        touched |= set(used)
        if used:
            assert "tenant_id" in flat, statement
        if "for update" in flat:
            assert "tenant_id = $" in flat, statement
    # asyncpg reads bullet_spans directly, in bullets_as_of
    elsewhere = {"idempotency_keys", "response_mentions", "bullet_spans"}
    assert touched >= set(TABLES) - NOT_FILLED - elsewhere


async def run_upkeep(runtime: Runtime, tenant_id: UUID, drain: Any) -> None:
    await upkeep.enqueue_upkeep(runtime)
    await drain(tenant_id)
