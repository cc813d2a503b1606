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

from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.maintenance.vector_indexes import IndexedScope, create_index, drop_index
from memory_api.memories.search.query import (
    SEARCH_CALL,
    EmbeddedQuery,
    SearchFilters,
    build_call,
)
from memory_api.text.terms import term_id
from migrations.search import part
from tests.plans.conftest import SIZES, Planned, explain, nodes, scans

TERMS = [term_id(f"word{i}") for i in (1, 2, 3, 4)]
VECTOR = np.random.default_rng(1).standard_normal(256).astype(np.float32)
INDEXES = {
    "memory_vectors": "memory_vectors_pkey",
    "postings": "postings_pkey",
}
OPEN: dict[str, Any] = {"v_is_unfiltered": True, "p_min_confidence": 0, "p_min_importance": 0}
FILTERED = OPEN | {
    "v_is_unfiltered": False,
    "v_tag_label_ids": [2],
    "v_section_label_ids": [3],
    "p_min_importance": 0.1,
}


def values(planned: Planned, who: str, scopes: list[int], filters: dict[str, Any]) -> Any:
    """The variables of the function as they are when it searches."""
    return {
        "p_tenant_id": planned.tenants[who],
        "v_scope_ids": scopes,
        "v_scanned_scope_ids": scopes,
        "v_scope_sizes": [SIZES[who], SIZES[who] // 10 + 1][: len(scopes)],
        "v_model_label_id": 1,
        "p_query_vector": HalfVector(VECTOR),
        "p_terms": TERMS,
        "p_frequencies": [1] * len(TERMS),
        "v_pair_scope_ids": [scope for scope in scopes for _ in TERMS],
        "v_pair_term_ids": TERMS * len(scopes),
        "v_pair_weights": [1 / len(TERMS)] * (len(TERMS) * len(scopes)),
        "v_weight_sums": [10] * len(scopes),
        "v_nearest": [1, 2, 3],
        "v_nearest_dense": [0.3, 0.2, 0.1],
        "v_farthest_dense": 0.1,
        "p_fusion": "anchored",
        "p_alpha": 0.4,
        "p_top_k": 10,
        "v_best_count": 10,
        "v_candidate_count": 100,
        "v_match_count": 40,
        "v_is_ranked": False,
        "p_rank_by_usefulness": False,
        "p_status": "active",
        **filters,
    }


def test_plan_tables_have_enough_rows(planned: Planned) -> None:
    assert sum(size + size // 10 for size in SIZES.values()) + 120 * 44 > 50_000


async def test_explained_statements_are_those_of_function(app_role: Any) -> None:
    source, settings = await app_role.fetchrow(
        "select prosrc, proconfig from pg_proc where proname = 'hansei_search'"
    )
    for name in (
        "playbook_header",
        "section_names",
        "scopes",
        "full_scan",
        "bounded_scan",
        "nearest",
        "candidates",
        "term_weights",
        "listing",
        "vector_index",
    ):
        assert part(name).strip() in source, name
    assert settings == ["plan_cache_mode=force_generic_plan"]


async def test_planner_settings_are_unchanged(app_role: Any) -> None:
    changed = await app_role.fetch(
        "select name from pg_settings where name like 'enable%' and setting <> boot_val"
    )
    assert [row["name"] for row in changed] == []


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("statement", ["full_scan", "bounded_scan", "nearest", "candidates"])
@pytest.mark.parametrize("scopes", [[1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("filters", [OPEN, FILTERED], ids=["open", "filtered"])
async def test_search_uses_index_only_scans(
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
            assert "scope_id = " in node["Index Cond"]
            assert node["Heap Fetches"] == 0
    for node in scans(plan, "memories"):
        assert node["Node Type"] == "Index Scan"
        assert node["Index Name"] == "memories_tenant_id_seq_key"
        assert "tenant_id = " in node["Index Cond"]
    assert [n["Relation Name"] for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


@pytest.mark.parametrize("who", SIZES)
async def test_term_weights_count_postings_in_the_index(
    planned: Planned, app_role: Any, who: str
) -> None:
    plan = await explain(app_role, "term_weights", values(planned, who, [1, 2], OPEN))
    for node in scans(plan, "postings"):
        assert node["Node Type"] == "Index Only Scan"
        assert node["Heap Fetches"] == 0
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("scope", [1, 2])
async def test_dense_leg_reads_rows_of_its_scope(
    planned: Planned, app_role: Any, who: str, scope: int
) -> None:
    rows = SIZES[who] if scope == 1 else SIZES[who] // 10 + 1
    plan = await explain(app_role, "full_scan", values(planned, who, [scope], OPEN))
    assert [node["Actual Rows"] for node in scans(plan, "memory_vectors")] == [rows]


@pytest.mark.parametrize(("statement", "most_loops"), [("full_scan", 10), ("bounded_scan", 40)])
async def test_plans_have_no_nested_comparison_of_rows(
    planned: Planned, app_role: Any, statement: str, most_loops: int
) -> None:
    """Scores meet by hash: no join runs once per row of the scope, whatever was estimated. The
    bounded scan looks up the vectors of its forty matches.
    """
    plan = await explain(app_role, statement, values(planned, "middle", [1], OPEN))
    assert max(node["Actual Loops"] for node in nodes(plan)) <= most_loops


LESS_IMPORTANT = OPEN | {"v_is_unfiltered": False, "p_min_importance": 0.1}


@pytest.mark.parametrize("filters", [OPEN, LESS_IMPORTANT], ids=["open", "filtered"])
async def test_bounded_scan_keeps_few_rows(
    planned: Planned, app_role: Any, filters: dict[str, Any]
) -> None:
    """One pass over the vectors of the scope, and few rows of it have the required cosine."""
    chosen = values(planned, "middle", [1], filters) | {"p_alpha": 0.1}
    plan = await explain(app_role, "bounded_scan", chosen)
    whole = [n for n in scans(plan, "memory_vectors") if n["Actual Loops"] == 1]
    assert [n["Actual Rows"] + n["Rows Removed by Filter"] for n in whole] == [SIZES["middle"]]
    assert whole[0]["Actual Rows"] < SIZES["middle"] / 4


@pytest.mark.parametrize("who", SIZES)
@pytest.mark.parametrize("name", ["a", None])
async def test_scopes_are_found_by_name(
    planned: Planned, app_role: Any, who: str, name: str | None
) -> None:
    """One by its name, or all of a type; whatever other tenants have."""
    named = {
        "p_projects": ["p"],
        "p_scope_types": ["collection"],
        "p_scope_names": [name or "null"],
    }
    plan = await explain(app_role, "scopes", {"p_tenant_id": planned.tenants[who], **named})
    for table, keys in (
        ("scopes", ["type = "]),
        ("scope_stats", ["scope_id = "]),
    ):
        found = scans(plan, table)
        assert found, table
        for node in found:
            assert "tenant_id = " in node["Index Cond"], table
            assert any(key in node["Index Cond"] for key in keys), table
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []
    scopes = [node["Actual Rows"] for node in scans(plan, "scopes") if node["Actual Loops"]]
    assert sum(scopes) == (1 if name else 2)


@pytest.mark.parametrize("statement", ["playbook_header", "section_names"])
async def test_playbook_is_found_by_its_keys(
    planned: Planned, app_role: Any, statement: str
) -> None:
    """Its own row, and what the names of its sections mean."""
    named = {"p_projects": ["p"], "p_scope_names": ["a"], "v_scope_ids": [1], "p_sections": ["pat"]}
    plan = await explain(app_role, statement, {"p_tenant_id": planned.tenants["big"], **named})
    found = scans(plan, "playbooks") + scans(plan, "labels")
    assert found
    for node in found:
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", ""))
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


async def test_listing_uses_scope_index(planned: Planned, app_role: Any) -> None:
    plan = await explain(app_role, "listing", values(planned, "small", [1], OPEN))
    found = scans(plan, "memories")
    assert found
    for node in found:
        assert "tenant_id = " in node.get("Index Cond", node.get("Recheck Cond", ""))
    assert [n for n in nodes(plan) if n["Node Type"] == "Seq Scan"] == []


QUESTION = EmbeddedQuery(StaticEmbedder.model, VECTOR, dict.fromkeys(TERMS, 1.0))


async def index_uses(connection: Any, index: str) -> int:
    """How often an index was read, as the server counts."""
    return await connection.fetchval(
        "select idx_scan from pg_stat_user_indexes where indexrelname = $1", index
    )


async def test_vector_index_of_scope_serves_only_that_scope(
    planned: Planned, owner_role: Any, app_role: Any
) -> None:
    big = planned.tenants["big"]
    made = await create_index(owner_role, IndexedScope(big, 2, 1), 256)
    # Three thousand rows are quick to index; only a large scope asks for its index.
    await owner_role.execute("begin")
    await owner_role.execute(f"set local hansei.tenant_id = '{big}'")
    await owner_role.execute(
        "insert into scope_stats values ($1, 2, gen_random_uuid(), 60000)", big
    )
    await owner_role.execute("commit")

    async def reads(who: str, name: str, filters: SearchFilters) -> int:
        """Uses of the index by a search as the service sends it."""
        before = await index_uses(app_role, made)
        call = build_call(QUESTION, [("p", "collection", name)], {"filters": filters})
        assert await app_role.fetch(SEARCH_CALL, planned.tenants[who], *call)
        await app_role.execute("select pg_stat_force_next_flush()")
        return await index_uses(app_role, made) - before

    assert await reads("big", "b", SearchFilters()) == 1
    assert await reads("big", "b", SearchFilters(min_importance=0.5)) == 1
    assert await reads("big", "b", SearchFilters(tags=("net",))) == 0, "2 % of the rows: exact"
    assert await reads("big", "a", SearchFilters()) == 0
    for other in ("middle", "small", "tiny"):
        assert await reads(other, "b", SearchFilters()) == 0
        assert await reads(other, "a", SearchFilters()) == 0
    await drop_index(owner_role, made)
    assert await app_role.fetchval("select to_regclass($1)", made) is None
