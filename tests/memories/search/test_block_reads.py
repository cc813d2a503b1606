"""What a search reads, by the server's own counters: it runs inside a function, where EXPLAIN does
not look.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.core.db import asyncpg_connection
from memory_api.memories.search.query import SearchFilters
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.runtime import Runtime
from tests.conftest import TestTenant
from tests.memories.conftest import ADDRESSES

COUNTERS = """
select t.relname,
       pg_stat_get_xact_numscans(t.oid) whole,
       coalesce((select sum(pg_stat_get_xact_tuples_fetched(x.indexrelid))
                 from pg_index x where x.indrelid = t.oid), 0)::int heap,
       pg_stat_get_xact_tuples_returned((t.relname || '_pkey')::regclass) "index"
from pg_class t
where t.relname in ('memory_vectors', 'postings', 'memories')
"""
"""Counters of the current transaction, so that nothing else on the server changes them."""
COUNTED = ("whole", "heap", "index")
"""Sequential scans; rows fetched from the table itself; entries read of the primary key's index."""

FILTERS = {
    "none": SearchFilters(),
    "tags": SearchFilters(tags=("net",)),
    "all": SearchFilters(tags=("net", "ui"), sections=("pitfalls",), min_importance=0.1),
}

pytestmark = pytest.mark.one_server("it counts the pages that one server reads")


async def counters(connection: Any) -> dict[str, dict[str, int]]:
    rows = await connection.fetch(COUNTERS)
    return {row["relname"]: {name: row[name] for name in COUNTED} for row in rows}


async def reads(
    runtime: Runtime, tenant: TestTenant, query: str, **how: Any
) -> dict[str, dict[str, int]]:
    """What one search reads, as the app role."""
    question = await embed_query(runtime.default_embedder, query)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        driver = await asyncpg_connection(session)
        before = await counters(driver)
        hits = await search_in_session(session, question, **how)
        assert await driver.fetchval("select current_user") == "hansei_app"
        after = await counters(driver)
    assert hits
    return {t: {name: after[t][name] - before[t][name] for name in COUNTED} for t in after}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("scopes", [1, 2])
async def test_search_reads_only_its_keys(runtime, own_tenant, name: str, scopes: int) -> None:
    query = "retry after a timeout 予約"
    how = {"addresses": ADDRESSES[:scopes], "filters": FILTERS[name]}
    read = await reads(runtime, own_tenant, query, **how)
    for table in ("memory_vectors", "postings"):
        assert read[table]["whole"] == 0, f"a sequential scan of {table}"
        assert 0 < read[table]["index"] < 1_500, f"{table}: more than its scopes hold"
        assert read[table]["heap"] <= read[table]["index"] / 10, (
            f"{table} was read outside its index: only pages that others write to are looked up"
        )
    assert read["memories"]["whole"] == 0
    assert read["memories"]["heap"] <= 100


async def test_dense_leg_reads_only_its_scope(runtime, own_tenant) -> None:
    """One scope of two: the rows of the other are never touched."""
    one = await reads(runtime, own_tenant, "zebra", addresses=ADDRESSES[:1], top_k=5)
    both = await reads(runtime, own_tenant, "zebra", addresses=ADDRESSES, top_k=5)
    assert 100 < one["memory_vectors"]["index"] < 200
    assert both["memory_vectors"]["index"] == 300


async def test_counters_detect_sequential_scan(runtime, own_tenant) -> None:
    async with runtime.sessions.for_tenant(own_tenant.id) as session:
        driver = await asyncpg_connection(session)
        before = await counters(driver)
        for way in ("indexonlyscan", "indexscan", "bitmapscan"):
            await driver.execute(f"set local enable_{way} = off")
        await driver.fetch("select seq from memory_vectors where tenant_id = $1", own_tenant.id)
        after = await counters(driver)
    assert after["memory_vectors"]["whole"] == before["memory_vectors"]["whole"] + 1
