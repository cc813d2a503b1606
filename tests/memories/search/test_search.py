"""One search is one round trip, binds its tenant and leaves none bound, and ranks as the reference
in Python does.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

import asyncpg
import numpy as np
import pytest

from bench.retrieval_quality import anchored, lexical, load, minmax
from memory_api.core.db import asyncpg_connection
from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import (
    MEMORY_COLUMNS,
    SEARCH_CALL,
    EmbeddedQuery,
    MemoryRecord,
    SearchHit,
    build_call,
)
from memory_api.memories.search.search import embed_query, search_in_session
from migrations.search import part, search_function
from tests.support.reference_search import drafts, write

ADDRESS = ("p", "collection", "c0")


async def found(runtime: Any, tenant: Any, question: EmbeddedQuery, **how: Any) -> list[SearchHit]:
    """A search without a transaction."""
    call = build_call(question, [ADDRESS], how)  # type: ignore[arg-type]
    async with runtime.sessions.raw_connection() as driver:
        return MEMORY_COLUMNS.parse_rows(await driver.fetch(SEARCH_CALL, tenant.id, *call)).hits


async def test_search_is_one_statement_and_no_transaction(runtime: Any, tenant: Any) -> None:
    await write(runtime, tenant.id, drafts(20, seed=1))
    question = await embed_query(runtime.default_embedder, "retry after a timeout")
    sent: list[str] = []

    def hear(record: asyncpg.connection.LoggedQuery) -> None:
        sent.append(record.query)

    async with runtime.sessions.raw_connection() as driver:
        driver.add_query_logger(hear)
    try:
        for _ in range(runtime.settings.pool_size * 2):  # whichever connection it gets
            assert await found(runtime, tenant, question)
    finally:
        driver.remove_query_logger(hear)
    assert sent
    assert set(sent) == {SEARCH_CALL}


async def test_single_statement_search_matches_transaction_search(
    runtime: Any, tenant: Any
) -> None:
    await write(runtime, tenant.id, drafts(50, seed=2))
    question = await embed_query(runtime.default_embedder, "login token expired at the proxy")
    once = await found(runtime, tenant, question, explain=True)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await search_in_session(session, question, [ADDRESS], explain=True) == once


async def test_search_leaves_no_tenant_bound(runtime: Any, tenant: Any) -> None:
    await write(runtime, tenant.id, drafts(5, seed=3))
    question = await embed_query(runtime.default_embedder, "retry")
    async with runtime.sessions.raw_connection() as driver:
        assert await driver.fetch(SEARCH_CALL, tenant.id, *build_call(question, [ADDRESS], {}))
        assert await driver.fetchval("select count(*) from memories") == 0


async def test_search_cannot_switch_tenant_of_transaction(
    runtime: Any, tenant: Any, make_tenant: Any
) -> None:
    other = await make_tenant()
    await write(runtime, other.id, drafts(5, seed=4))
    question = await embed_query(runtime.default_embedder, "retry")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        driver = await asyncpg_connection(session)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await driver.fetch(SEARCH_CALL, other.id, *build_call(question, [ADDRESS], {}))
        await session.rollback()


async def test_database_has_current_search_function(runtime: Any) -> None:
    """After a change of hybrid.sql a new migration has to install it."""
    async with runtime.sessions.raw_connection() as driver:
        source = await driver.fetchval("select prosrc from pg_proc where proname = 'hansei_search'")
    assert source in search_function()


def test_function_returns_selected_columns() -> None:
    """It names its columns twice: in what it returns and in what it selects."""
    returned = search_function().split("returns table (")[1].split(") language")[0]
    names = [column.split()[0].strip('"') for column in returned.split(",")]
    selected = re.findall(r"m\.(\w+)", part("columns"))
    assert names[-len(selected) :] == selected
    assert {field.name.rstrip("_") for field in fields(MemoryRecord)} == set(selected)


async def test_rank_by_usefulness_weights_score(runtime: Any, tenant: Any) -> None:
    items = await write(runtime, tenant.id, drafts(60, seed=5))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        driver = await asyncpg_connection(session)
        for place, item in enumerate(items):
            await driver.execute(
                "update memories set usefulness = $3 where tenant_id = $1 and id = $2",
                *(tenant.id, item.draft.id, place / 60),
            )
    question = await embed_query(runtime.default_embedder, "retry after a timeout")
    how = {"top_k": 60, "filters": None}
    plain = await found(runtime, tenant, question, **how)
    useful = await found(runtime, tenant, question, rank_by="usefulness", **how)
    weighed = [hit.combined_score * (0.5 + hit.memory.usefulness) for hit in useful]
    assert weighed == sorted(weighed, reverse=True)
    assert {hit.memory.id for hit in useful} == {hit.memory.id for hit in plain}
    assert [hit.memory.id for hit in useful] != [hit.memory.id for hit in plain]
    scores = {hit.memory.id: hit.combined_score for hit in plain}
    assert all(hit.combined_score == scores[hit.memory.id] for hit in useful)


@pytest.mark.parametrize("fusion", ["anchored", "minmax"])
async def test_large_playbook_is_ranked_like_a_small_one(
    runtime: Any, tenant: Any, fusion: str
) -> None:
    """Past two thousand rows the best are chosen among candidates: the order is the same."""
    items = await write(runtime, tenant.id, drafts(2_300, seed=6))
    vectors = np.stack([i.vector for i in items]).astype(np.float16).astype(np.float64)
    for query in (
        "retry after a timeout",
        "認証 token retry",
        "no 1711",
        "flight",
        "料金 no 7 seat",
    ):
        question = await embed_query(runtime.default_embedder, query)
        dense = (vectors @ question.vector.astype(np.float16).astype(np.float64))[np.newaxis]
        words = lexical([i.weights for i in items], [question.terms])
        best = np.sort({"anchored": anchored, "minmax": minmax}[fusion](dense, words)[0])[::-1]
        hits = await found(runtime, tenant, question, fusion=fusion, top_k=20)
        assert [h.combined_score for h in hits] == pytest.approx(best[:20].tolist(), abs=2e-4)


async def test_large_playbook_ranks_usefulness_within_best_matches(
    runtime: Any, tenant: Any
) -> None:
    """Four times as many as are asked for are weighed by usefulness, near or not."""
    await write(runtime, tenant.id, drafts(2_300, seed=8))
    question = await embed_query(runtime.default_embedder, "retry after a timeout at the seat")
    plain = await found(runtime, tenant, question, top_k=400)
    useful = plain[300:]
    async with runtime.sessions.for_tenant(tenant.id) as session:
        driver = await asyncpg_connection(session)
        await driver.execute(
            "update memories set usefulness = 1 where tenant_id = $1 and id = any($2)",
            *(tenant.id, [hit.memory.id for hit in useful]),
        )
    hits = await found(runtime, tenant, question, top_k=100, rank_by="usefulness")
    weighed = {
        hit.memory.id: hit.combined_score * (1.5 if hit in useful else 0.5 + hit.memory.usefulness)
        for hit in plain
    }
    best = sorted(weighed, key=lambda key: -weighed[key])[:100]
    assert {hit.memory.id for hit in useful} & set(best)
    assert sorted(weighed[key] for key in best) == pytest.approx(
        sorted(weighed[hit.memory.id] for hit in hits)
    )


@pytest.mark.parametrize("name", ["en-lessons-hotpot", "en-xquad"])
async def test_sql_ranking_matches_benchmark_reference(
    runtime: Any, tenant: Any, shared: Any, name: str
) -> None:
    """The ranking of bench/retrieval_quality.py is that of the service."""
    data = load(shared / "data" / "retrieval" / name)
    texts = list(data.documents.values())
    items = await prepare_memories(
        TenantEmbedder(runtime.default_embedder),
        [MemoryDraft(MemoryKind.BULLET, "p", text, ADDRESS) for text in texts],
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await insert_memories(session, items)
    asked = [
        await embed_query(runtime.default_embedder, text)
        for text in list(data.queries.values())[:60]
    ]
    dense = np.stack([q.vector for q in asked]) @ np.stack([i.vector for i in items]).T
    scores = anchored(
        dense.astype(np.float64), lexical([i.weights for i in items], [q.terms for q in asked])
    )
    places = {item.draft.id: place for place, item in enumerate(items)}
    for question, row in zip(asked, scores, strict=True):
        hits = await found(runtime, tenant, question)
        best = np.sort(row)[::-1][:10]
        for hit, score in zip(hits, best, strict=True):
            assert math.isclose(row[places[hit.memory.id]], score, abs_tol=2e-3)
