"""After an import, before the tables were analyzed, the cleanup finds memories by their numbers."""

from __future__ import annotations

import json
from uuid import UUID

import asyncpg

from memory_api.core.resources import read_sql
from tests.plans.conftest import scans
from tests.support.postgres import Server

IMPORTED = 5_000
ROWS = """
insert into memories (tenant_id, seq, id, project_id, layer, kind, scope_id, content, searchable_text, source, tokenizer, fingerprint)
overriding system value
select $1, n, gen_random_uuid(), 'p', 'rm', 'bullet', 1, 'x', 'x', 'test', 't', ''
from generate_series(1, $2::int) n
"""  # noqa: E501


async def test_contents_of_an_import_are_found_by_number(server: Server, worker_id: str) -> None:
    name, tenant = f"import_plans_{worker_id}", UUID(int=1)
    await server.clone(name)
    connection = await asyncpg.connect(server.url("postgres", name))
    await connection.execute("alter table memories set (autovacuum_enabled = false)")
    await connection.execute("set session_replication_role = replica")
    await connection.execute(ROWS, tenant, IMPORTED)
    await connection.close()
    statement = read_sql("memories/queries.sql", "find_contents")
    for place, parameter in enumerate(("tenant", "seqs", "scope"), 1):
        statement = statement.replace(f":{parameter}", f"${place}")
    connection = await asyncpg.connect(server.url("hansei_worker", name))
    await connection.execute(f"set hansei.tenant_id = '{tenant}'")
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute(f"prepare found (uuid, bigint[], bigint) as {statement}")
    explained = await connection.fetchval(
        f"explain (analyze, format json) execute found ('{tenant}', '{{7,4000,9999}}', 1)"
    )
    await connection.close()
    (scan,) = scans(json.loads(explained)[0]["Plan"], "memories")
    assert (scan["Index Name"], scan["Actual Loops"]) == ("memories_tenant_id_seq_key", 3)
    assert scan.get("Rows Removed by Filter", 0) == 0
