"""Which tables are where when Citus distributes a database by tenant, and what its catalog says.

The rules are in docs/decisions/distribution.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memory_api.core.resources import read_sql

REFERENCE_TABLES = ("tenants", "analytics.logins")
"""Copied to every node: few writes, and joined with the tables of a tenant. All other tables
without a tenant, such as the queue, stay on the coordinator."""


@dataclass(frozen=True)
class Function:
    """A function that every node needs. `argument` names the tenant in a call that runs on the
    node of this tenant, with `is_forced` also inside a transaction.
    """

    signature: str
    argument: str | None
    is_forced: bool


async def list_tables_to_distribute(connection: Any) -> list[str]:
    """The tables to distribute, parents before children."""
    rows = await connection.fetch(read_sql("core/catalog.sql", "tenant_tables"))
    return [row["relname"] for row in reversed(rows)]


async def list_functions(connection: Any) -> list[Function]:
    rows = await connection.fetch(read_sql("distribution/distribution.sql", "functions"))
    return [Function(**dict(row)) for row in rows]


async def list_functions_with_generic_plans(connection: Any) -> list[str]:
    """Citus makes no generic plan of a statement whose tenant is a parameter."""
    rows = await connection.fetch(
        read_sql("distribution/distribution.sql", "functions_with_generic_plans")
    )
    return [signature for (signature,) in rows]


async def load_triggers(connection: Any, table: str) -> dict[str, str]:
    """The name of each trigger of a table, and the statement that creates it."""
    rows = await connection.fetch(
        read_sql("distribution/distribution.sql", "table_triggers"), table
    )
    return {row["name"]: row["definition"] for row in rows}


async def load_colocations(connection: Any) -> dict[str, int | None]:
    """The tables that Citus manages. None for a table that is not distributed."""
    rows = await connection.fetch(read_sql("distribution/distribution.sql", "managed_tables"))
    return {row["name"]: row["colocation"] if row["is_distributed"] else None for row in rows}


async def load_managed_functions(connection: Any) -> dict[str, bool]:
    """The functions that are on all nodes, and whether a call runs on the node of its tenant."""
    rows = await connection.fetch(read_sql("distribution/distribution.sql", "managed_functions"))
    return {row["signature"]: row["is_delegated"] for row in rows}


async def is_distributed(connection: Any) -> bool:
    """Whether Citus distributes this database, or began to."""
    if not (await load_server(connection))["is_citus"]:
        return False
    managed = await load_colocations(connection)
    return any(colocation is not None for colocation in managed.values())


async def load_server(connection: Any) -> Any:
    return await connection.fetchrow(read_sql("distribution/distribution.sql", "server"))


async def list_nodes(connection: Any) -> list[tuple[str, int, bool]]:
    """Host, port and whether it is the coordinator."""
    rows = await connection.fetch(read_sql("distribution/distribution.sql", "nodes"))
    return [(row["host"], row["port"], row["is_coordinator"]) for row in rows]


WRONG_SETTINGS = read_sql("distribution/distribution.sql", "wrong_settings")
"""The settings that a node needs and does not have, as a JSON array."""
