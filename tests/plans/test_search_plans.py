"""What search reads: its own keys, from the index alone, whatever the size of tenant and scope.

The planner's settings are the server's own, with one exception that belongs to the function: its
plans are generic. Planned for its values, the search of a tenant who owns most of a table would
read that table whole (docs/decisions/search.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pgvector import HalfVector

from apps.memory_api.embeddings.static import StaticEmbedder
from apps.memory_api.memory.find import CALL, Filters, Question, call_of
from apps.memory_api.memory.hybrid import part
from apps.memory_api.text.tokens import term_id
from apps.memory_api.workers.index import Scope, drop_index, make_index
from tests.plans.conftest import SIZES, Planned, explain, nodes, scans

TERMS = [term_id(f"word{i}") for i in (1, 2, 3, 4)]
VECTOR = np.random.default_rng(1).standard_normal(256).astype(np.float32)
INDEXES = {
    "memory_vectors": "memory_vectors_pkey",
    "postings": "postings_pkey",
}
OPEN: dict[str, Any] = {"_open": True, "_min_confidence": 0, "_min_importance": 0}
FILTERED = OPEN | {"_open": False, "_tag_ids": [2], "_section_ids": [3], "_min_importance": 0.1}


def values(planned: Planned, who: str, scopes: list[int], filters: dict[str, Any]) -> Any:
    """The variables of the function as they are when it searches."""
    return {
        "_t": planned.tenants[who],
        "_scopes": scopes,
        "_scanned": scopes,
        "_sizes": [SIZES[who], SIZES[who] // 10 + 1][: len(scopes)],
        "_model_id": 1,
        "_q": HalfVector(VECTOR),
        "_terms": TERMS,
        "_frequencies": [1] * len(TERMS),
        "_near": [1, 2, 3],
        "_near_vs": [0.3, 0.2, 0.1],
        "_farthest": 0.1,
        "_bounded": filters["_open"],
        "_fusion": "anchored",
        "_alpha": 0.4,
        "_top_k": 10,
        "_width": 10,
        "_candidates": 100,
        "_ranked": False,
        "_by_usefulness": False,
        "_status": "active",
        **filters,
    }


def test_there_are_rows_enough(planned: Planned) -> None:
    assert sum(size + size // 10 for size in SIZES.values()) + 120 * 44 > 50_000


async def test_the_statements_explained_are_those_of_the_function(app_role: Any) -> None:
    source, settings = await app_role.fetchrow(
        "select prosrc, proconfig from pg_proc where proname = 'hansei_search'"
    )
    for name in ("head", "meant", "named", "whole", "nearest", "candidates", "listed", "indexed"):
        assert part(name).strip() in source, name
    assert settings == ["plan_cache_mode=force_generic_plan"]


async def test_nothing_forbids_the_planner_a_bad_plan(app_role: Any) -> None:
    changed = await app_role.fetch(
        "select name from pg_settings where name like 'enable%' and setting <> boot_val"
    )
    assert [row["name"] for row in changed] == []


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("statement", ["whole", "nearest", "candidates"])
@pytest.mark.parametrize("scopes", [[1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("filters", [OPEN, FILTERED], ids=["open", "filtered"])
async def test_search_reads_its_own_keys_from_the_index_alone(
    planned: Planned,
    app_role: Any,
    who: str,
    statement: str,
    scopes: list[int],
    filters: dict[str, Any],
) -> None:
    plan = await explain(app_role, statement, values(planned, who, scopes, filters))
    for table, index in INDEXES.items():
        if statement == "nearest" and table == "postings":
            continue
        found = scans(plan, table)
        assert found, table
        for node in found:
            assert node["Node Type"] == "Index Only Scan", (table, node["Node Type"])
            assert node["Index Name"] == index
            assert "tenant_id = " in node["Index Cond"]
            assert "scope = " in node["Index Cond"]
            assert node["Heap Fetches"] == 0
    for node in scans(plan, "memories"):
        assert node["Node Type"] == "Index Scan"
        assert node["Index Name"] == "memories_tenant_id_n_key"
        assert "tenant_id = " in node["Index Cond"]
    assert [n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("scope", [1, 2])
async def test_the_dense_leg_reads_as_many_rows_as_its_scope_has(
    planned: Planned, app_role: Any, who: str, scope: int
) -> None:
    rows = SIZES[who] if scope == 1 else SIZES[who] // 10 + 1
    plan = await explain(app_role, "whole", values(planned, who, [scope], OPEN))
    assert [node["Actual Rows"] for node in scans(plan, "memory_vectors")] == [rows]


async def test_no_rows_are_compared_with_rows(planned: Planned, app_role: Any) -> None:
    """Scores meet by hash: no join runs once per row of the scope, whatever was estimated."""
    plan = await explain(app_role, "whole", values(planned, "middle", [1], OPEN))
    assert max(node["Actual Loops"] for node in nodes(plan)) <= 10


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("name", ["a", None])
async def test_scopes_are_found_by_name(
    planned: Planned, app_role: Any, who: str, name: str | None
) -> None:
    """One by its name, or all of an area; whatever other tenants have."""
    named = {"_projects": ["p"], "_areas": ["collection"], "_names": [name or "null"]}
    plan = await explain(app_role, "named", {"_t": planned.tenants[who], **named})
    for table, keys in (
        ("scopes", ["area = "]),
        ("scope_stats", ["scope = "]),
    ):
        found = scans(plan, table)
        assert found, table
        for node in found:
            assert "tenant_id = " in node["Index Cond"], table
            assert any(key in node["Index Cond"] for key in keys), table
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []
    scopes = [node["Actual Rows"] for node in scans(plan, "scopes") if node["Actual Loops"]]
    assert sum(scopes) == (1 if name else 2)


@pytest.mark.parametrize("statement", ["head", "meant"])
async def test_a_playbook_is_found_by_its_keys(
    planned: Planned, app_role: Any, statement: str
) -> None:
    """Its own row, and what the names of its sections mean."""
    named = {"_projects": ["p"], "_names": ["a"], "_scopes": [1], "_sections": ["pat"]}
    plan = await explain(app_role, statement, {"_t": planned.tenants["big"], **named})
    found = scans(plan, "playbooks") + scans(plan, "labels")
    assert found
    for node in found:
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", ""))
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


async def test_listing_goes_by_the_tenants_scope(planned: Planned, app_role: Any) -> None:
    plan = await explain(app_role, "listed", values(planned, "small", [1], OPEN))
    found = scans(plan, "memories")
    assert found
    for node in found:
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", ""))
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


QUESTION = Question(StaticEmbedder.model, VECTOR, dict.fromkeys(TERMS, 1.0))


async def index_uses(connection: Any, index: str) -> int:
    """How often an index was read, as the server counts."""
    return await connection.fetchval(
        "select idx_scan from pg_stat_user_indexes where indexrelname = $1", index
    )


async def test_the_vector_index_of_one_scope_serves_that_scope_alone(
    planned: Planned, owner_role: Any, app_role: Any
) -> None:
    big = planned.tenants["big"]
    made = await make_index(owner_role, Scope(big, 2, 1), 256)
    # Three thousand rows are quick to index; only a large scope asks for its index.
    await owner_role.execute("begin")
    await owner_role.execute(f"set local hansei.tenant_id = '{big}'")
    await owner_role.execute(
        "insert into scope_stats values ($1, 2, gen_random_uuid(), 60000)", big
    )
    await owner_role.execute("commit")

    async def reads(who: str, name: str, filters: Filters) -> int:
        """Uses of the index by a search as the service sends it."""
        before = await index_uses(app_role, made)
        call = call_of(QUESTION, [("p", "collection", name)], {"filters": filters})
        assert await app_role.fetch(CALL, planned.tenants[who], *call)
        await app_role.execute("select pg_stat_force_next_flush()")
        return await index_uses(app_role, made) - before

    assert await reads("big", "b", Filters()) == 1
    assert await reads("big", "b", Filters(min_importance=0.5)) == 1
    assert await reads("big", "b", Filters(tags=("net",))) == 0, "2 % of the rows: exact"
    assert await reads("big", "a", Filters()) == 0
    for other in ("middle", "small", "tiny"):
        assert await reads(other, "b", Filters()) == 0
        assert await reads(other, "a", Filters()) == 0
    await drop_index(owner_role, made)
    assert await app_role.fetchval("select to_regclass($1)", made) is None
