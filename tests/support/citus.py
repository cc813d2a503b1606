"""A Citus cluster for the tests: HANSEI_TEST_PG is the URL of a superuser of the coordinator, in a
database where the nodes are registered. The roles of the service get the password of this URL.

A database cannot be cloned across nodes, so each one is created, migrated and distributed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from memory_api.core.migrations import upgrade
from memory_api.distribution.citus_catalog import list_nodes
from memory_api.distribution.distribute import distribute
from memory_api.embedded.provisioning import RESTRICT_LOGINS
from tests.support.postgres import Server, urls_of_roles

SHARD_COUNT = 4
OPTIONS = {"hansei_owner": "createrole bypassrls", "hansei_app": "", "hansei_worker": ""}


@dataclass(frozen=True)
class Cluster(Server):
    """The coordinator. `nodes` has all addresses, this one first."""

    nodes: tuple[tuple[str, int], ...] = ()
    password: str = ""

    async def make_template(self) -> None:
        for node in self.nodes:
            for role, options in OPTIONS.items():
                if not await self.ask(node, f"select 1 from pg_roles where rolname = '{role}'"):
                    await self.on(node, f"create role {role}")
                await self.on(node, f"alter role {role} login {options} password '{self.password}'")
            await self.on(
                node,
                "grant hansei_app, hansei_worker to hansei_owner"
                " with admin true, inherit false, set false",
            )

    async def clone(self, database: str) -> None:
        await self.create_database(database)
        for node in self.nodes:
            for statement in (
                "revoke create on schema public from public",
                "grant usage on schema public to hansei_app, hansei_worker",
                "create extension vector",
                "create extension citus",
                RESTRICT_LOGINS,
                f"alter database {database} set citus.enable_unsafe_triggers = on",
            ):
                await self.on(node, statement, database)
        (host, port), *workers = self.nodes
        await self.on(
            self.nodes[0], f"select citus_set_coordinator_host('{host}', {port})", database
        )
        for host, port in workers:
            await self.on(self.nodes[0], f"select citus_add_node('{host}', {port})", database)
        await upgrade(self.url("hansei_owner", database))
        await distribute(
            self.url("hansei_owner", database), shard_count=SHARD_COUNT, report=lambda _: None
        )

    async def drop_database(self, name: str) -> None:
        for node in self.nodes:
            await self.on(node, f"drop database if exists {name} with (force)")

    async def create_database(self, name: str, options: str = "") -> None:
        await self.drop_database(name)  # of an earlier run
        for node in self.nodes:
            await self.on(node, f"create database {name} owner hansei_owner {options}")
            await self.on(node, f"revoke all on database {name} from public")
            await self.on(node, f"grant connect on database {name} to hansei_app, hansei_worker")

    async def on(self, node: tuple[str, int], statement: str, database: str = "postgres") -> None:
        connection = await self._connect(node, database)
        try:
            if database == "postgres":  # each node is told
                await connection.execute("set citus.enable_ddl_propagation = off")
            await connection.execute(statement)
        finally:
            await connection.close()

    async def ask(self, node: tuple[str, int], statement: str) -> object:
        connection = await self._connect(node, "postgres")
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def _connect(self, node: tuple[str, int], database: str) -> asyncpg.Connection:
        return await asyncpg.connect(
            host=node[0], port=node[1], user="postgres", password=self.password, database=database
        )


def is_cluster(url: str) -> bool:
    return url.startswith("postgresql:") and asyncio.run(open_cluster(url)) is not None


async def open_cluster(url: str) -> Cluster | None:
    """None if the server has no Citus."""
    parts = urlsplit(url)
    connection = await asyncpg.connect(url)
    try:
        if not await connection.fetchval("select 1 from pg_extension where extname = 'citus'"):
            return None
        nodes = await list_nodes(connection)
    finally:
        await connection.close()
    ordered = sorted(nodes, key=lambda node: not node[2])  # the coordinator first
    addresses = tuple((host, port) for host, port, _ in ordered)

    async def provision(_: Server) -> None:
        """`make_template` does everything."""

    return Cluster(urls_of_roles(url), provision, addresses, parts.password or "")
