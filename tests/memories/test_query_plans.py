"""Query plans of the statements the service really sends, on many rows, as the app role. Those of
search are in `tests/plans`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx2
import pytest
from sqlalchemy import event

from memory_api.core.db import asyncpg_connection
from memory_api.core.statements import Statement, fetch_rows
from memory_api.memories.editing import delete_memory
from memory_api.memories.index import writer
from memory_api.memories.search.search import embed_query, search_in_session
from tests.conftest import TestTenant
from tests.memories.conftest import ADDRESSES

pytestmark = pytest.mark.one_server("it reads the plans and pages of one server")


class Sent:
    """The last statement with this in it, as the driver got it."""

    def __init__(self, part: str) -> None:
        self.part, self.statement = part, ""
        self.parameters: Sequence[Any] = ()

    def hear(self, _c: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if self.part.lower() in statement.lower():
            self.statement, self.parameters = statement, parameters

    async def plan(self, runtime: Any, tenant: TestTenant) -> dict[str, Any]:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            driver = await asyncpg_connection(session)
            assert await driver.fetchval("select current_user") == "hansei_app"
            explained = await driver.fetchval(
                f"explain (analyze, buffers, format json) {self.statement}", *self.parameters
            )
        return (json.loads(explained) if isinstance(explained, str) else explained)[0]["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def scans(plan: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """Index scans name their table only in `Relation Name`."""
    return [node for node in nodes(plan) if node.get("Relation Name") == table]


@pytest.fixture
def hearing(runtime: Any) -> Iterator[Any]:
    engine = runtime.sessions.engine.sync_engine
    heard: list[Sent] = []

    def listen(part: str) -> Sent:
        sent = Sent(part)
        heard.append(sent)
        event.listen(engine, "before_cursor_execute", sent.hear)
        return sent

    yield listen
    for sent in heard:
        event.remove(engine, "before_cursor_execute", sent.hear)


async def test_unindexing_uses_primary_key(runtime, own_tenant, hearing, monkeypatch) -> None:
    sent, posts = hearing("delete from memory_vectors"), Sent("")

    async def fetch(session: Any, statement: Statement, parameters: dict[str, Any]) -> Any:
        if statement is writer.DELETE_POSTINGS:
            bound = {**parameters, "tenant": own_tenant.id}
            values = [bound[name] for name in statement.parameters]
            posts.statement, posts.parameters = statement.text, values
        return await fetch_rows(session, statement, parameters)

    monkeypatch.setattr(writer, "fetch_rows", fetch)
    question = await embed_query(runtime.default_embedder, "retry")
    async with runtime.sessions.for_tenant(own_tenant.id) as session:
        hit = (await search_in_session(session, question, ADDRESSES, top_k=1))[0]
    await delete_memory(runtime, own_tenant.id, hit.memory.id, "tester")
    for statement, table in ((sent, "memory_vectors"), (posts, "postings")):
        plan = await statement.plan(runtime, own_tenant)
        found = scans(plan, table)
        assert found
        for node in found:
            if node["Node Type"] == "ModifyTable":
                continue
            assert node["Node Type"].startswith(("Index", "Bitmap")), node["Node Type"]
            assert "seq = " in node.get("Index Cond", node.get("Recheck Cond", "")), node


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/api/v1/memories?kind=reflection", "memories"),
        ("/api/v1/runs", "runs"),
        ("/api/v1/traces", "traces"),
    ],
)
async def test_lists_use_their_index(
    runtime, own_tenant, app, hearing, path: str, table: str
) -> None:
    sent = hearing(f"FROM {table}")
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://hansei", headers=own_tenant.auth()
    ) as api:
        (await api.get(path)).raise_for_status()
    plan = await sent.plan(runtime, own_tenant)
    assert scans(plan, table)
    for node in scans(plan, table):
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", "")), node
