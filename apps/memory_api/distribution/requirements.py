"""What a server and its nodes need before their tables can be distributed."""

from __future__ import annotations

import json
from typing import Any

from memory_api.core.errors import HanseiError
from memory_api.distribution.citus_catalog import WRONG_SETTINGS, list_nodes, load_server

MIN_VERSION = 16


class CannotDistribute(HanseiError):
    """Something is missing. The message says what, and who can change it."""


async def check_server(connection: Any) -> None:
    """Raises CannotDistribute for the first thing that the coordinator lacks."""
    server = await load_server(connection)
    if server["version_number"] < MIN_VERSION * 10_000:
        raise CannotDistribute(
            f"PostgreSQL {server['version']} is too old: distribution needs {MIN_VERSION} or newer."
        )
    if not server["is_citus"]:
        raise CannotDistribute(
            "Citus is not installed in this database."
            " Run `create extension citus;` as a superuser, on every node."
        )
    if not server["is_migrated"]:
        raise CannotDistribute("There are no tables yet. Run `hansei migrate` first.")
    if not server["may_bypass_rls"]:
        raise CannotDistribute(
            f"The role {server['role']} may not bypass row-level security, so it cannot copy rows"
            f" between nodes. Run `alter role {server['role']} bypassrls;` as a superuser."
        )


async def check_registration(connection: Any) -> None:
    """Citus knows the coordinator and at least one other node. Only a superuser may register
    them.
    """
    nodes = await list_nodes(connection)
    if not any(is_coordinator for _, _, is_coordinator in nodes):
        raise CannotDistribute(
            "Citus does not know the address of the coordinator."
            " Run `select citus_set_coordinator_host('HOST', PORT);` as a superuser."
        )
    if all(is_coordinator for _, _, is_coordinator in nodes):
        raise CannotDistribute(
            "No worker node is registered."
            " Run `select citus_add_node('HOST', PORT);` as a superuser, for each."
        )


async def check_nodes(connection: Any) -> None:
    """Every node answers and has the settings that distribution needs."""
    _require_settings("the coordinator", await connection.fetchval(WRONG_SETTINGS))
    rows = await connection.fetch(
        "select nodename, nodeport, success, result from run_command_on_workers($1)", WRONG_SETTINGS
    )
    for row in rows:
        node = f"{row['nodename']}:{row['nodeport']}"
        if not row["success"]:
            raise CannotDistribute(f"The node {node} does not answer: {row['result'].strip()}")
        _require_settings(f"the node {node}", row["result"])


def _require_settings(where: str, wrong: str) -> None:
    if missing := json.loads(wrong):
        settings = " and ".join(f"`{setting}`" for setting in missing)
        raise CannotDistribute(f"Set {settings} on {where} and restart it.")
