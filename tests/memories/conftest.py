"""A tenant among many, on as many rows as a plan needs to matter."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.conftest import Database, TestTenant
from tests.support.reference_search import drafts, write

ADDRESSES = [("p", "collection", "c0"), ("p", "collection", "c1")]
"""The scopes of the tenant `here`, about a hundred and fifty memories each."""

ROWS = 20_000
OTHER_TENANTS = 60

VECTORS = """
insert into memory_vectors (tenant_id, scope_id, model_label_id, seq, kind_id, confidence,
                            importance, created_at, tag_label_ids, embedding)
select t.id, s, 1, g * 10 + s, 1, 0.5, random(), now(), '{}',
       (select array_agg(random() - 0.5) from generate_series(1, 256) where g > 0)::halfvec
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""
POSTINGS = """
insert into postings (tenant_id, scope_id, term_id, seq, weight)
select distinct t.id, s, (random() * 500)::int, g * 10 + s, 1
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g,
     generate_series(1, 8)
"""


SCOPES = """
insert into scopes (tenant_id, id, project_id, type, name)
select t.id, s, 'p', 'kind', s::text from unnest($1::uuid[]) t(id), generate_series(50, 51) s
"""
MEMORIES = """
insert into memories (tenant_id, id, project_id, layer, kind, scope_id, content, searchable_text,
                      source, tokenizer, fingerprint)
select t.id, gen_random_uuid(), 'p', 'rm', 'reflection', s, 'x', 'x', 'test', 't', ''
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""

STATISTICS = """
insert into scope_stats (tenant_id, scope_id, id, delta)
select t.id, s, gen_random_uuid(), 1
from unnest($1::uuid[]) t(id), generate_series(50, 51) s, generate_series(1, $2) g
"""


@pytest.fixture(scope="session")
async def many_tenants(database: Database) -> None:
    """Twenty thousand vectors and their postings, of many other tenants, analyzed."""
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        tenants = await connection.fetch(
            "select md5(x::text)::uuid id from generate_series(1, $1) x", OTHER_TENANTS
        )
        ids = [row["id"] for row in tenants]
        await connection.execute(
            "set session_replication_role = replica"
        )  # no history of the crowd
        await connection.execute(SCOPES, ids)
        for statement in (VECTORS, POSTINGS, MEMORIES, STATISTICS):
            await connection.execute(statement, ids, ROWS // OTHER_TENANTS // 2 + 1)
    finally:
        await connection.close()


@pytest.fixture
async def own_tenant(
    many_tenants: None, runtime: Any, tenant: TestTenant, server: Any, database: Database
) -> Any:
    """A tenant with three hundred memories of its own among the crowd."""
    await write(runtime, tenant.id, drafts(300, seed=1, scopes=2))
    await make_all_visible(server, database)
    return tenant


TABLES = ("memory_vectors", "postings", "memories", "scope_stats")


OLDER_TRANSACTIONS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
      and (backend_xid is not null or backend_xmin is not null)
"""


async def make_all_visible(server: Any, database: Database) -> None:
    """Vacuum until every page with rows is marked as visible to all: reads would look at the table
    for the others. A transaction of another test that has not ended yet prevents it, and so do dead
    rows, which VACUUM leaves in a few pages unless it is told to clean the indexes. New pages
    without rows, which PostgreSQL adds in advance, are never marked; pages whose rows were deleted
    are, so that the number of marked pages alone proves nothing.
    """
    connection = await asyncpg.connect(database.url("postgres"))  # sees all rows and sessions
    try:
        for _ in range(50):
            older = await connection.fetchval(OLDER_TRANSACTIONS)
            hidden = {"older transactions": older}
            for table in TABLES if older == 0 else ():
                await server.run(f"vacuum (analyze, index_cleanup on) {table}", database.name)
                used = f"select count(distinct (ctid::text::point)[0]) from {table}"
                visible = "select relallvisible from pg_class where oid = $1::text::regclass"
                hidden[table] = await connection.fetchval(used)
                hidden[table] -= await connection.fetchval(visible, table)
            if max(hidden.values()) <= 0:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"pages that are not visible to all: {hidden}")
    finally:
        await connection.close()
