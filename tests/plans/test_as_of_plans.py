"""A playbook of the past: its bullets are found by one short range of the index for each width,
whatever else the database contains.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from memory_api.playbooks.queries import BULLETS_AS_OF, CURRENT_VERSION
from tests.plans.conftest import nodes, scans
from tests.support.postgres import Server

BULLETS, VERSIONS = 600, 6_000
"""Of the first scope, each changed at a hundred versions; the second has a tenth of them."""
TENANTS = [UUID(int=n) for n in range(1, 6)]
TABLES = ("memories", "bullet_spans")
FILL = f"""
create temporary table bullet as
    select t.id tenant_id, s.scope, s.scope * 10000 + b n, gen_random_uuid() id
    from unnest($1::uuid[]) t(id)
    cross join (values (1, {BULLETS}), (2, {BULLETS} // 10)) s(scope, many)
    cross join lateral generate_series(1, s.many) b
""".replace("//", "/")
MEMORIES = f"""
insert into memories (tenant_id, id, seq, project_id, layer, kind, scope_id, key, content,
                      searchable_text, source, tokenizer, fingerprint, playbook_version)
    overriding system value
    select tenant_id, id, n, 'p', 'rm', 'bullet', scope, 'pat-' || n, 'x', 'x', 't', 't', '', {VERSIONS}
    from bullet
"""  # noqa: E501
SPANS = f"""
insert into bullet_spans (tenant_id, bullet_id, from_version, until_version, scope_id, content,
                          status,
                          pinned)
    select tenant_id, id, since, until, scope, 'x', 'active', false
    from (
        select *, lead(since, 1, {VERSIONS}) over (partition by tenant_id, id order by since) until
        from bullet
        cross join lateral (
            select distinct 1 + (random() * {VERSIONS - 2})::int * (k > 1)::int since
            from generate_series(1, 100) k where n > 0
        ) s
    ) spans
    where since < until
    order by until
"""


@pytest.fixture(scope="session")
async def past(server: Server, worker_id: str) -> str:
    """A database whose playbooks have changed a lot; its name."""
    name = f"past_{worker_id}"
    await server.clone(name)
    connection = await asyncpg.connect(server.url("postgres", name))
    try:
        await connection.execute("set session_replication_role = replica")
        await connection.execute("create temporary table tenant (id uuid)")
        await connection.execute("select setseed(0.5)")
        await connection.fetch(FILL, TENANTS)
        for statement in (MEMORIES, SPANS):
            await connection.execute(statement)
        for table in TABLES:
            await connection.execute(f"vacuum (analyze) {table}")
    finally:
        await connection.close()
    return name


@pytest.fixture
async def service(server: Server, past: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.url("hansei_app", past))
    yield connection
    await connection.close()


async def explain(
    connection: Any, scope: int, version: int, ids: list[UUID] | None = None
) -> dict[str, Any]:
    """The plan of the service's own statement, generic as it is after a few calls; and run."""
    await connection.execute("set plan_cache_mode = force_generic_plan")
    await connection.execute("deallocate all")
    await connection.execute(f"prepare as_of as {BULLETS_AS_OF.text}")
    given = "null" if ids is None else f"'{{{','.join(map(str, ids))}}}'"
    values = {"tenant": f"'{TENANTS[2]}'", "scope": scope, "version": version, "ids": given}
    arguments = ", ".join(str(values[name]) for name in BULLETS_AS_OF.parameters)
    async with connection.transaction():
        await connection.execute(f"set local hansei.tenant_id = '{TENANTS[2]}'")
        explained = await connection.fetchval(
            f"explain (analyze, buffers, format json) execute as_of({arguments})"
        )
    return json.loads(explained)[0]["Plan"]


def rows(node: dict[str, Any]) -> float:
    return node["Actual Rows"] * node["Actual Loops"]


@pytest.mark.parametrize(("scope", "many"), [(1, BULLETS), (2, BULLETS // 10)])
@pytest.mark.parametrize("version", [1, 17, VERSIONS // 2, VERSIONS - 1])
async def test_version_reads_only_its_spans(
    service: Any, scope: int, many: int, version: int
) -> None:
    plan = await explain(service, scope, version)
    read = [node for node in scans(plan, "bullet_spans") if node["Actual Loops"]]
    (spans,) = read
    assert spans["Node Type"] == "Index Scan"
    assert spans["Index Name"] == "bullet_spans_scope_id_length_class_until_version_idx"
    for part in (
        *("tenant_id = ", "scope_id = ", "length_class = "),
        *("until_version > ", "until_version < ", "from_version <= "),
    ):
        assert part in spans["Index Cond"]
    assert spans["Actual Loops"] <= 31, "once for each width, never once for each bullet"
    held = plan["Actual Rows"]
    assert 0 < held <= many
    assert rows(spans) == pytest.approx(held, abs=31), "rounded for each loop"
    assert [n for n in nodes(plan) if n["Node Type"] == "Sort"] == []


async def test_current_version_reads_no_span(service: Any) -> None:
    plan = await explain(service, 1, CURRENT_VERSION)
    assert plan["Actual Rows"] == BULLETS
    assert sum(rows(node) for node in scans(plan, "bullet_spans")) == 0


async def test_few_bullets_cost_one_probe_each(service: Any) -> None:
    async with service.transaction():
        await service.execute(f"set local hansei.tenant_id = '{TENANTS[2]}'")
        found = await service.fetch(
            "select id from memories where scope_id = 1 order by seq limit 3"
        )
    plan = await explain(service, 1, VERSIONS // 2, [row["id"] for row in found])
    assert plan["Actual Rows"] == 3
    (spans,) = [node for node in scans(plan, "bullet_spans") if node["Actual Loops"]]
    assert spans["Index Name"] == "bullet_spans_pkey"
    assert (spans["Actual Loops"], rows(spans)) == (3, 3)
