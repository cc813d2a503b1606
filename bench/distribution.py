"""Distributes the tables of a migrated database by tenant with Citus.

The order of the statements follows a trial with Citus 14 on PostgreSQL 18, with an earlier schema
(docs/decisions/distribution.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REFERENCE_TABLES = ("tenants",)
"""Copied to every node: few writes, joined from everywhere."""
LOCAL_TABLES = (
    "api_keys",
    "installation",
    "tickets",
    "write_probes",
    "rate_limit_counters",
    "upkeep_schedule",
)
"""Stay on the coordinator. Registered with Citus, so that a transaction with a distributed table is
committed in two phases."""
FUNCTIONS = ("hansei_search", "hansei_insert_retrieval")
"""Bind their tenant themselves, so a call must run on the node of its tenant."""
SERVICE_ROLES = ("hansei_app", "hansei_worker")
SHARDS = 32

TENANT_TABLES = """
with recursive tables as (
    select c.oid, c.relname::text name
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id' and not a.attisdropped
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
      and not c.relispartition and c.relname <> all($1)
),
parents as (
    select distinct conrelid child, confrelid parent from pg_constraint
    where contype = 'f' and conrelid <> confrelid
),
depths as (
    select t.oid, t.name, 0 depth from tables t
    union all
    select t.oid, t.name, d.depth + 1
    from depths d join parents p on p.parent = d.oid join tables t on t.oid = p.child
)
select name from depths group by name order by max(depth), name
"""
TRIGGERS = """
select format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass) removed,
       pg_get_triggerdef(t.oid) created
from pg_trigger t where not t.tgisinternal and t.tgrelid::regclass::text = any($1)
order by t.tgname
"""
SIGNATURES = """
select oid::regprocedure::text signature, proargnames[1] argument from pg_proc
where pronamespace = 'public'::regnamespace and proname = any($1)
"""


async def distribute(
    superuser: Any, owner: Any, database: str, workers: Sequence[tuple[str, int]]
) -> list[str]:
    """Distribute a migrated database. `superuser` and `owner` are connections to the coordinator,
    `workers` the addresses of its nodes. Returns the distributed tables.

    The service must be stopped: distribution blocks writes. Every node needs `wal_level = logical`,
    `session_preload_libraries = 'vector'`, and a line of pg_hba.conf for the service's roles.
    """
    for host, port in workers:
        await superuser.execute("select citus_add_node($1, $2)", host, port)
    await superuser.execute("alter role hansei_owner bypassrls")
    for role in SERVICE_ROLES:
        await superuser.execute(
            f"alter role {role} in database {database} set citus.propagate_set_commands = 'local'"
        )
    tables = await tenant_tables(owner)
    # The copy of a table's rows would fire its triggers.
    triggers = await owner.fetch(TRIGGERS, tables)
    for trigger in triggers:
        await owner.execute(trigger["removed"])
    await owner.execute(f"set citus.shard_count = {SHARDS}")
    for table in REFERENCE_TABLES:
        await owner.execute("select create_reference_table($1::regclass)", table)
    for table in LOCAL_TABLES:
        await owner.execute("select citus_add_local_table_to_metadata($1::regclass)", table)
    first = tables[0]
    await owner.execute(
        "select create_distributed_table($1::regclass, 'tenant_id', colocate_with := 'none')", first
    )
    for table in tables[1:]:  # parents before children
        await owner.execute(
            "select create_distributed_table($1::regclass, 'tenant_id', colocate_with := $2)",
            *(table, first),
        )
    await owner.execute("set citus.enable_unsafe_triggers = on")
    for trigger in triggers:
        await owner.execute(trigger["created"])
    await owner.execute("reset citus.enable_unsafe_triggers")
    for function in await owner.fetch(SIGNATURES, FUNCTIONS):
        await owner.execute(
            "select create_distributed_function($1::regprocedure, $2, colocate_with := $3)",
            *(function["signature"], function["argument"], first),
        )
    for table in tables:
        await owner.execute(
            "select truncate_local_data_after_distributing_table($1::regclass)", table
        )
        await owner.execute(f"vacuum analyze {table}")  # index-only scans need the visibility map
    return tables


async def tenant_tables(connection: Any) -> list[str]:
    """The tables to distribute, parents before children."""
    rows = await connection.fetch(TENANT_TABLES, [*REFERENCE_TABLES, *LOCAL_TABLES])
    return [row["name"] for row in rows]
