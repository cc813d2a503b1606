"""Query plans of the statements the service really sends, on many rows, as the app role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import httpx2
import pytest
from sqlalchemy import event

from apps.memory_api.core.db import raw_connection
from apps.memory_api.memory.change import remove
from apps.memory_api.memory.find import Filters, ask, search
from tests.conftest import Database, TestTenant
from tests.memory.world import drafts, write

ROWS = 20_000
OTHER_TENANTS = 60

VECTORS = """
insert into memory_vectors (tenant_id, scope, model, n, kind, confidence, importance, created_at,
                            tag_ids, emb)
select t.id, s, 1, g * 10 + s, 1, 0.5, random(), now(), '{}',
       (select array_agg(random() - 0.5) from generate_series(1, 256) where g > 0)::halfvec
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""
POSTINGS = """
insert into postings (tenant_id, scope, term, n, weight)
select distinct t.id, s, (random() * 500)::int, g * 10 + s, 1
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g,
     generate_series(1, 8)
"""


SCOPES = """
insert into scopes (tenant_id, scope, project_id, area, name)
select t.id, s, 'p', 'kind', s::text from unnest($1::uuid[]) t(id), generate_series(50, 51) s
"""
MEMORIES = """
insert into memories (tenant_id, id, project_id, layer, kind, scope, content, searchable_text,
                      source, tokenizer, fingerprint)
select t.id, gen_random_uuid(), 'p', 'rm', 'reflection', s, 'x', 'x', 'test', 't', ''
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""

STATISTICS = """
insert into scope_stats (tenant_id, scope, id, delta)
select t.id, s, gen_random_uuid(), 1
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""


@pytest.fixture(scope="module")
async def crowd(database: Database) -> None:
    """Twenty thousand vectors and their postings, of many other tenants, analysed."""
    connection = await asyncpg.connect(database.url("postgres"))
    tenants = await connection.fetch(
        "select md5(x::text)::uuid id from generate_series(1, $1) x", OTHER_TENANTS
    )
    ids = [row["id"] for row in tenants]
    await connection.execute("set session_replication_role = replica")  # no history of the crowd
    await connection.execute(SCOPES, ids)
    for statement in (VECTORS, POSTINGS, MEMORIES, STATISTICS):
        await connection.execute(statement, ids, ROWS // OTHER_TENANTS // 2 + 1)
    await connection.close()


@pytest.fixture
async def here(
    crowd: None, runtime: Any, tenant: TestTenant, server: Any, database: Database
) -> Any:
    """A tenant with three hundred memories of its own among the crowd."""
    await write(runtime, tenant.id, drafts(300, seed=1, scopes=2))
    for table in ("memory_vectors", "postings", "memories", "scope_stats"):
        await server.run(f"vacuum analyze {table}", database.name)
    return tenant


class Sent:
    """The last statement with this in it, as the driver got it."""

    def __init__(self, part: str) -> None:
        self.part, self.statement, self.parameters = part, "", ()

    def hear(self, _c: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        if self.part.lower() in statement.lower():
            self.statement, self.parameters = statement, parameters

    async def plan(self, runtime: Any, tenant: TestTenant) -> dict[str, Any]:
        async with runtime.sessions.tenant(tenant.id) as session:
            driver = await raw_connection(session)
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


ADDRESSES = [("p", "collection", "c0"), ("p", "collection", "c1")]
FILTERS = {
    "none": Filters(),
    "tags": Filters(tags=("net",)),
    "all": Filters(tags=("net", "ui"), sections=("pitfalls",), min_importance=0.1),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("scopes", [1, 2])
async def test_search_reads_its_keys_and_nothing_else(
    runtime, here, hearing, name: str, scopes: int
) -> None:
    sent = hearing("from postings")
    question = await ask(runtime.embedder, "retry after a timeout 予約")
    async with runtime.sessions.tenant(here.id) as session:
        assert await search(session, question, ADDRESSES[:scopes], filters=FILTERS[name])
    plan = await sent.plan(runtime, here)
    for table, index in (("memory_vectors", "memory_vectors_pkey"), ("postings", "postings_pkey")):
        found = scans(plan, table)
        assert found, table
        for node in found:
            assert node["Node Type"] == "Index Only Scan", (table, node["Node Type"])
            assert node["Index Name"] == index
            assert "tenant_id = " in node["Index Cond"]
            assert "scope" in node["Index Cond"]
            assert node["Heap Fetches"] == 0
    whole = [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    assert whole == []
    for node in scans(plan, "memories"):
        assert node["Node Type"] == "Index Scan"
        assert "tenant_id = " in node["Index Cond"]


async def test_the_dense_leg_reads_its_scope_alone(runtime, here, hearing) -> None:
    """One scope of two: the rows of the other are never touched."""
    sent = hearing("from postings")
    question = await ask(runtime.embedder, "zebra")
    async with runtime.sessions.tenant(here.id) as session:
        await search(session, question, ADDRESSES[:1])
    plan = await sent.plan(runtime, here)
    read = [
        node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        for node in scans(plan, "memory_vectors")
        if node["Actual Loops"] == 1
    ]
    assert read
    assert max(read) < 200


async def test_withdrawing_goes_by_the_key(runtime, here, hearing) -> None:
    sent = hearing("delete from memory_vectors")
    posts = hearing("delete from postings")
    question = await ask(runtime.embedder, "retry")
    async with runtime.sessions.tenant(here.id) as session:
        hit = (await search(session, question, ADDRESSES, top_k=1))[0]
    await remove(runtime, here.id, hit.memory.id, "tester")
    for statement, table in ((sent, "memory_vectors"), (posts, "postings")):
        plan = await statement.plan(runtime, here)
        found = scans(plan, table)
        assert found
        for node in found:
            if node["Node Type"] == "ModifyTable":
                continue
            assert node["Node Type"].startswith(("Index", "Bitmap")), node["Node Type"]
            assert "n = " in node.get("Index Cond", node.get("Recheck Cond", "")), node


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/api/v1/memories?kinds=reflection", "memories"),
        ("/api/v1/runs", "runs"),
        ("/api/v1/traces", "traces"),
    ],
)
async def test_lists_read_their_index(runtime, here, app, hearing, path: str, table: str) -> None:
    sent = hearing(f"FROM {table}")
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://hansei", headers=here.auth()
    ) as api:
        (await api.get(path)).raise_for_status()
    plan = await sent.plan(runtime, here)
    assert scans(plan, table)
    for node in scans(plan, table):
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", "")), node
