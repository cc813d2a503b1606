"""What a search reads, by the server's own counters: it runs inside a function, where EXPLAIN does
not look.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from apps.memory_api.core.db import raw_connection
from apps.memory_api.memory.find import Filters, ask, search
from apps.memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.memory.conftest import ADDRESSES

COUNTERS = """
select t.relname, t.seq_scan whole, t.idx_tup_fetch heap, i.idx_tup_read "index"
from pg_stat_user_tables t
join pg_stat_user_indexes i on i.relid = t.relid and i.indexrelname = t.relname || '_pkey'
where t.relname in ('memory_vectors', 'postings', 'memories')
"""
COUNTED = ("whole", "heap", "index")
"""Sequential scans; rows fetched from the table itself; entries read of the primary key's index."""

FILTERS = {
    "none": Filters(),
    "tags": Filters(tags=("net",)),
    "all": Filters(tags=("net", "ui"), sections=("pitfalls",), min_importance=0.1),
}


async def counters(database: Database) -> dict[str, dict[str, int]]:
    connection = await asyncpg.connect(database.url("postgres"))
    try:
        rows = await connection.fetch(COUNTERS)
    finally:
        await connection.close()
    return {row["relname"]: {name: row[name] for name in COUNTED} for row in rows}


async def reads(
    runtime: Runtime, database: Database, tenant: TestTenant, query: str, **how: Any
) -> dict[str, dict[str, int]]:
    """What one search reads, as the app role."""
    question = await ask(runtime.embedder, query)
    before = await counters(database)
    async with runtime.sessions.tenant(tenant.id) as session:
        driver = await raw_connection(session)
        hits = await search(session, question, **how)
        assert await driver.fetchval("select current_user") == "hansei_app"
        await driver.execute("select pg_stat_force_next_flush()")
    after = await counters(database)
    assert hits
    return {t: {name: after[t][name] - before[t][name] for name in COUNTED} for t in after}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("scopes", [1, 2])
async def test_search_reads_its_keys_and_nothing_else(
    runtime, database, here, name: str, scopes: int
) -> None:
    query = "retry after a timeout 予約"
    how = {"addresses": ADDRESSES[:scopes], "filters": FILTERS[name]}
    read = await reads(runtime, database, here, query, **how)
    for table in ("memory_vectors", "postings"):
        assert read[table]["whole"] == 0, f"a sequential scan of {table}"
        assert read[table]["heap"] == 0, f"{table} was read outside its index"
        assert 0 < read[table]["index"] < 1_500, f"{table}: more than its scopes hold"
    assert read["memories"]["whole"] == 0
    assert read["memories"]["heap"] <= 100


async def test_the_dense_leg_reads_its_scope_alone(runtime, database, here) -> None:
    """One scope of two: the rows of the other are never touched."""
    one = await reads(runtime, database, here, "zebra", addresses=ADDRESSES[:1], top_k=5)
    both = await reads(runtime, database, here, "zebra", addresses=ADDRESSES, top_k=5)
    assert 100 < one["memory_vectors"]["index"] < 200
    assert both["memory_vectors"]["index"] == 300


async def test_the_counters_notice_a_sequential_scan(runtime, database, here) -> None:
    before = await counters(database)
    async with runtime.sessions.tenant(here.id) as session:
        driver = await raw_connection(session)
        for way in ("indexonlyscan", "indexscan", "bitmapscan"):
            await driver.execute(f"set local enable_{way} = off")
        await driver.fetch("select n from memory_vectors where tenant_id = $1", here.id)
        await driver.execute("select pg_stat_force_next_flush()")
    after = await counters(database)
    assert after["memory_vectors"]["whole"] == before["memory_vectors"]["whole"] + 1
