"""Distributes the tables of a database by tenant with Citus. Every step is skipped if it is done,
and a table changes in one transaction, so an interrupted call is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg

from memory_api.distribution.citus_catalog import (
    REFERENCE_TABLES,
    is_distributed,
    list_functions,
    list_functions_with_generic_plans,
    list_tables_to_distribute,
    load_colocations,
    load_managed_functions,
    load_triggers,
)
from memory_api.distribution.requirements import (
    check_nodes,
    check_registration,
    check_server,
)

SERVICE_ROLES = ("hansei_app", "hansei_worker")
DEFAULT_SHARD_COUNT = 32
Report = Callable[[str], None]


async def distribute(
    owner_url: str, *, shard_count: int = DEFAULT_SHARD_COUNT, report: Report = print
) -> None:
    """Distribute all tables over the registered nodes. Blocks writes. Raises CannotDistribute if
    something is missing, before anything changes.
    """
    connection: Any = await asyncpg.connect(owner_url)
    try:
        await check_server(connection)
        await check_registration(connection)
        await check_nodes(connection)
        await _lock(connection)
        for role in SERVICE_ROLES:
            await _configure_role(connection, role)
        await _distribute_tables(connection, shard_count, report)
    finally:
        await connection.close()


async def distribute_new_tables(owner_url: str, report: Report = print) -> None:
    """Distribute what a migration created. Does nothing if the database is not distributed."""
    connection: Any = await asyncpg.connect(owner_url)
    try:
        if await is_distributed(connection):
            await _lock(connection)
            await _distribute_tables(connection, DEFAULT_SHARD_COUNT, report)
    finally:
        await connection.close()


async def _lock(connection: Any) -> None:
    """A second caller waits until the connection of the first is closed."""
    await connection.execute("select pg_advisory_lock(hashtextextended('hansei.distribute', 0))")


async def _configure_role(connection: Any, role: str) -> None:
    """For the new connections of a role: `SET LOCAL` reaches the nodes, and shards are not hidden
    in the catalog. Hiding them takes asyncpg seconds when it first needs a type.
    """
    database = await connection.fetchval("select quote_ident(current_database())")
    for setting in ("propagate_set_commands = 'local'", "override_table_visibility = off"):
        await connection.execute(f"alter role {role} in database {database} set citus.{setting}")


async def _distribute_tables(connection: Any, shard_count: int, report: Report) -> None:
    managed = await load_colocations(connection)
    for table in REFERENCE_TABLES:
        if table not in managed:
            await connection.execute("select create_reference_table($1::text::regclass)", table)
            report(f"table {table}: copied to all nodes")
    tables = await list_tables_to_distribute(connection)
    first = next((table for table in tables if managed.get(table) is not None), None)
    await connection.execute(f"set citus.shard_count = {shard_count}")
    await _create_functions(connection, report)
    for table in tables:
        if table not in managed:
            await _distribute_table(connection, table, first or "none")
            first = first or table
            report(f"table {table}: distributed by tenant")
    await _delegate_functions(connection, tables[0], report)
    for table in tables:
        # Frees the rows that were copied to the nodes, also those of an interrupted call.
        if await connection.fetchval("select pg_relation_size($1::text::regclass) > 0", table):
            await connection.execute(
                "select truncate_local_data_after_distributing_table($1::text::regclass)", table
            )
            await connection.execute(f"vacuum analyze {table}")  # for scans of an index alone
    report(f"{len(tables)} tables are distributed by tenant")


async def _distribute_table(connection: Any, table: str, colocated_with: str) -> None:
    """Copy the rows of a table to the nodes. Its triggers are created again afterwards: the copy
    would fire them.
    """
    async with connection.transaction():
        triggers = await load_triggers(connection, table)
        for name in triggers:
            await connection.execute(f"drop trigger {name} on {table}")
        await connection.execute(
            "select create_distributed_table($1::text::regclass, 'tenant_id', colocate_with := $2)",
            *(table, colocated_with),
        )
        # Citus does not check that a trigger stays on its node. These do: they write rows of the
        # same tenant.
        await connection.execute("set local citus.enable_unsafe_triggers = on")
        for definition in triggers.values():
            await connection.execute(definition)


async def _create_functions(connection: Any, report: Report) -> None:
    """Create on all nodes what policies, triggers and statements call."""
    managed = await load_managed_functions(connection)
    for function in await list_functions(connection):
        if function.argument is None and function.signature not in managed:
            await connection.execute(
                "select create_distributed_function($1::text::regprocedure)", function.signature
            )
            report(f"function {function.signature}: created on all nodes")


async def _delegate_functions(connection: Any, table: str, report: Report) -> None:
    """Calls of a function that binds a tenant run on the node of this tenant."""
    for signature in await list_functions_with_generic_plans(connection):
        await connection.execute(f"alter function {signature} reset plan_cache_mode")
        report(f"function {signature}: plans for each call")
    managed = await load_managed_functions(connection)
    for function in await list_functions(connection):
        if function.argument is not None and not managed.get(function.signature):
            await connection.execute(
                "select create_distributed_function($1::text::regprocedure, $2,"
                " colocate_with := $3, force_delegation := $4)",
                *(function.signature, function.argument, table, function.is_forced),
            )
            report(f"function {function.signature}: runs on the node of its tenant")
