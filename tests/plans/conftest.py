"""More than fifty thousand served rows of tenants of very different sizes, in a database of their
own, vacuumed and analyzed; planner settings as the server ships them.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.text.terms import term_id
from migrations.search import part, search_function
from tests.support.postgres import Server

SIZES = {"big": 30_000, "middle": 12_000, "small": 1_500, "tiny": 40}
"""Rows of each of a tenant's two scopes `a` (all of them) and `b` (a tenth)."""
CROWD = 120
"""Further tenants of forty rows."""
WORDS = 400

FILL = (Path(__file__).parent / "rows.sql").read_text(encoding="utf-8")
TABLES = ("memory_vectors", "postings", "memories", "scope_stats", "scopes", "labels")


@dataclass(frozen=True)
class Planned:
    """The database of these tests. Tenants by name: `big`, `middle`, `small`, `tiny`."""

    server: Server
    name: str
    tenants: dict[str, UUID]

    def url(self, role: str) -> str:
        return self.server.url(role, self.name)


@pytest.fixture(scope="session")
async def planned(server: Server, worker_id: str) -> Planned:
    name = f"plans_{worker_id}"
    await server.clone(name)
    tenants = {who: UUID(int=size) for who, size in SIZES.items()}
    wanted = [(tenants[who], size) for who, size in SIZES.items()]
    wanted += [(UUID(int=10**9 + i), 40) for i in range(CROWD)]
    connection = await asyncpg.connect(server.url("postgres", name))
    try:
        await connection.execute("set session_replication_role = replica")
        await connection.execute("create temporary table wanted (id uuid, size int)")
        await connection.copy_records_to_table("wanted", records=wanted)
        await connection.execute("create temporary table named (model text, terms int[])")
        terms = [term_id(f"word{i}") for i in range(WORDS)]
        await connection.execute("insert into named values ($1, $2)", StaticEmbedder.model, terms)
        await connection.execute("select setseed(0.5)")  # the same rows in each run
        await connection.execute(FILL)
        for table in TABLES:
            await connection.execute(f"vacuum (analyze) {table}")
    finally:
        await connection.close()
    return Planned(server, name, tenants)


@pytest.fixture
async def app_role(planned: Planned) -> AsyncIterator[Any]:
    """A connection as the service's role."""
    connection = await asyncpg.connect(planned.url("hansei_app"))
    await register_vector(connection)
    yield connection
    await connection.close()


@pytest.fixture
async def owner_role(planned: Planned) -> AsyncIterator[Any]:
    """A connection as the owner of the tables, who makes their indexes."""
    connection = await asyncpg.connect(planned.url("hansei_owner"))
    yield connection
    await connection.close()


def declared() -> dict[str, str]:
    """The types of the function's variables."""
    kinds = "uuid|text|halfvec|int|real|float8|smallint|timestamptz|boolean|bigint"
    found = re.findall(rf"\b([pv]_\w+) ((?:{kinds})(?:\[\])?)", search_function())
    return dict(reversed(found))


async def explain(connection: Any, name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The plan of one statement of the function, made as the function makes it: generic, as the
    app role, with row-level security; and run.
    """
    types = declared()
    statement = re.sub(r"\binto v_\w+(, v_\w+)*", "", part(name))
    names = [n for n in types if re.search(rf"\b{n}\b", statement)]
    for number, variable in enumerate(names, start=1):
        statement = re.sub(rf"\b{variable}\b", f"${number}", statement)
    casts = ", ".join(types[n] for n in names)
    settings = await connection.fetchval(
        "select proconfig from pg_proc where proname = 'hansei_search'"
    )
    for setting in settings:
        await connection.execute(f"set {setting}")
    await connection.execute("deallocate all")
    await connection.execute(f"prepare search({casts}) as {statement}")
    tenant = values["p_tenant_id"]
    async with connection.transaction():
        await connection.execute(f"set local hansei.tenant_id = '{tenant}'")
        given = ", ".join(literal(values.get(n), types[n]) for n in names)
        explained = await connection.fetchval(
            f"explain (analyze, buffers, format json) execute search({given})"
        )
    return json.loads(explained)[0]["Plan"]


def literal(value: Any, kind: str) -> str:
    if value is None:
        return f"null::{kind}"
    if isinstance(value, HalfVector):
        value = value.to_list()
    if isinstance(value, list):
        inside = ", ".join(map(str, value))
        value = f"[{inside}]" if kind == "halfvec" else f"{{{inside}}}"
    return f"'{value}'::{kind}"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", []):
        yield from nodes(inner)


def scans(plan: dict[str, Any], table: str) -> list[dict[str, Any]]:
    return [node for node in nodes(plan) if node.get("Relation Name") == table]
