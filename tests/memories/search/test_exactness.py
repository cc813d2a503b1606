"""`hansei_search` against the slow and obvious way: the same ids, the same scores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from sqlalchemy import delete

from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import DEFAULT_ALPHA, EmbeddedQuery, SearchFilters
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.memories.tables import ScopeStatRow
from tests.support.reference_search import drafts, ranks, search_by_reference, write

QUERIES = (
    "retry after a timeout",
    "login token expired at the proxy",
    "予約の検索が失敗した原因",
    "認証 token retry",
    "timeout timeout timeout",
    "zebra quux",  # no memory has these words
    "the of and",  # nothing to index: the vector alone
)
FILTERS = {
    "none": SearchFilters(),
    "kinds": SearchFilters(kinds=(MemoryKind.STRATEGY,)),
    "sections": SearchFilters(sections=("pitfalls", "never used")),
    "tags": SearchFilters(tags=("net", "auth")),
    "errors": SearchFilters(error_categories=("timeout_error",)),
    "importance": SearchFilters(min_importance=0.7),
    "confidence": SearchFilters(min_confidence=0.5),
    "confidence, none": SearchFilters(min_confidence=0.6),
    "all": SearchFilters(
        kinds=(MemoryKind.REFLECTION,),
        sections=("strategies",),
        tags=("data", "ui"),
        error_categories=("timeout_error", "tool_error"),
        min_importance=0.2,
    ),
}
ADDRESS = ("p", "collection", "c0")


async def compare(runtime, tenant, items, question, filters, addresses, **how) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        hits = await search_in_session(session, question, addresses, filters=filters, **how)
        again = await search_in_session(session, question, addresses, filters=filters, **how)
    fusion = how.get("fusion", "anchored")
    alpha = how.get("alpha") if how.get("alpha") is not None else DEFAULT_ALPHA[fusion]
    if not question.terms and (fusion != "anchored" or how.get("alpha") is not None):
        alpha = 1.0
    expected = search_by_reference(items, question, filters, fusion=fusion, alpha=alpha)
    assert [h.memory.id for h in again] == [h.memory.id for h in hits]
    assert len(hits) == min(how["top_k"], len(expected))
    for hit in hits:
        want = expected[hit.memory.id]
        got = (hit.cosine, hit.bm25, hit.vector_score, hit.bm25_score, hit.combined_score)
        wanted = (want.cosine, want.bm25, want.vector_score, want.bm25_score, want.combined)
        assert got == pytest.approx(wanted, abs=2e-4)
    best = sorted((want.combined for want in expected.values()), reverse=True)
    assert [hit.combined_score for hit in hits] == pytest.approx(best[: len(hits)], abs=2e-4)
    if how.get("explain"):
        ids, wants = list(expected), list(expected.values())
        words = dict(zip(ids, ranks(np.array([w.bm25 for w in wants])), strict=True))
        dense = dict(zip(ids, ranks(np.array([w.cosine for w in wants])), strict=True))
        for hit in hits:
            assert hit.lexical_rank == words[hit.memory.id]
            if hit.dense_rank != dense[hit.memory.id]:  # rounding between two of one score
                assert abs((hit.dense_rank or 0) - (dense[hit.memory.id] or 0)) == 1
    assert [hit.combined_score for hit in hits] == sorted(
        (hit.combined_score for hit in hits), reverse=True
    )


@pytest.mark.parametrize("fusion", ["anchored", "minmax", "rrf"])
async def test_search_matches_reference_search(runtime, tenant, fusion: str) -> None:
    items = await write(runtime, tenant.id, drafts(90, seed=1))
    for query in QUERIES:
        question = await embed_query(runtime.default_embedder, query)
        for top_k, alpha in ((10, None), (90, 0.0), (90, 0.7)):
            how = {"top_k": top_k, "alpha": alpha, "fusion": fusion, "explain": top_k == 90}
            await compare(runtime, tenant, items, question, SearchFilters(), [ADDRESS], **how)


@pytest.mark.parametrize("name", FILTERS)
async def test_filters_are_exact(runtime, tenant, name: str) -> None:
    items = await write(runtime, tenant.id, drafts(95, seed=2))
    for query in QUERIES[:4]:
        question = await embed_query(runtime.default_embedder, query)
        await compare(runtime, tenant, items, question, FILTERS[name], [ADDRESS], top_k=50)


async def test_scopes_have_separate_statistics(runtime, tenant) -> None:
    items = await write(runtime, tenant.id, drafts(99, seed=3, scopes=3))
    addresses = [("p", "collection", f"c{n}") for n in range(3)]
    for query in QUERIES:
        question = await embed_query(runtime.default_embedder, query)
        await compare(runtime, tenant, items, question, SearchFilters(), addresses, top_k=99)
        some = [item for item in items if item.draft.scope_address != addresses[1]]
        wanted = [addresses[0], addresses[2], ("p", "collection", "not there")]
        await compare(runtime, tenant, some, question, SearchFilters(), wanted, top_k=99)


async def test_statistics_ignore_other_tenants(runtime, make_tenant) -> None:
    mine, other = await make_tenant(), await make_tenant()
    items = await write(runtime, mine.id, drafts(40, seed=4))
    await write(runtime, other.id, drafts(80, seed=5))
    question = await embed_query(runtime.default_embedder, QUERIES[0])
    await compare(runtime, mine, items, question, SearchFilters(), [ADDRESS], top_k=40)


@pytest.mark.parametrize("count", [1, 2, 101, 200, 1000])
async def test_limit_of_all_returns_all(runtime, tenant, count: int) -> None:
    """`top_k` as large as the scope brings all of it, each once."""
    await write(runtime, tenant.id, drafts(count, seed=6))
    for query in ("retry after a timeout", "the of", "zebra"):
        question = await embed_query(runtime.default_embedder, query)
        if question.is_empty:
            continue
        async with runtime.sessions.for_tenant(tenant.id) as session:
            hits = await search_in_session(session, question, [ADDRESS], top_k=count)
        assert len({hit.memory.id for hit in hits}) == len(hits) == count


async def test_more_memories_than_candidates(runtime, tenant) -> None:
    """Beyond the candidates the best ten are still those of the slow way."""
    items = await write(runtime, tenant.id, drafts(420, seed=7))
    for query in QUERIES[:4]:
        question = await embed_query(runtime.default_embedder, query)
        await compare(runtime, tenant, items, question, SearchFilters(), [ADDRESS], top_k=10)


@pytest.fixture(scope="module")
def large() -> list[MemoryDraft]:
    """More memories than a full scan takes. Equal texts have equal scores."""
    made = drafts(560, seed=15)
    return [replace(d, content=made[n // 2].content) if n < 80 else d for n, d in enumerate(made)]


@pytest.mark.parametrize("name", ["none", "confidence", "tags", "all"])
async def test_bounded_scan_is_exact(runtime, tenant, large, name: str) -> None:
    """The bounds lose no result: with any weight of the vector, with filters that few memories
    pass, and for terms that few or no memories have.
    """
    items = await write(runtime, tenant.id, large)
    for query in ("retry after a timeout", "認証 token retry seat", "zebra 17"):
        question = await embed_query(runtime.default_embedder, query)
        for alpha in (None, 0.02, 0.9, 1.0):
            how = {"top_k": 10, "alpha": alpha}
            await compare(runtime, tenant, items, question, FILTERS[name], [ADDRESS], **how)


async def test_time_filters(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(5, seed=8))
    question = await embed_query(runtime.default_embedder, "retry")
    now = datetime.now(UTC)
    for filters, count in (
        (SearchFilters(since=now - timedelta(hours=1)), 5),
        (SearchFilters(until=now - timedelta(hours=1)), 0),
        (SearchFilters(since=now + timedelta(hours=1)), 0),
        (SearchFilters(since=now - timedelta(hours=1), until=now + timedelta(hours=1)), 5),
    ):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            assert (
                len(await search_in_session(session, question, [ADDRESS], filters=filters)) == count
            )


async def test_scope_without_statistics_is_searchable(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(30, seed=9))
    question = await embed_query(runtime.default_embedder, "timeout retry")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(delete(ScopeStatRow).where(ScopeStatRow.tenant_id == tenant.id))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        hits = await search_in_session(session, question, [ADDRESS], top_k=30)
    assert max(hit.bm25 or 0 for hit in hits) > 0
    assert all(hit.bm25_score >= 0 for hit in hits)


async def test_lexical_only_and_dense_only(runtime, tenant) -> None:
    items = await write(runtime, tenant.id, drafts(60, seed=10))
    question = await embed_query(runtime.default_embedder, "timeout retry")
    blind = replace(question, vector=np.zeros_like(question.vector))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        words = await search_in_session(session, blind, [ADDRESS], top_k=60)
        vector = await search_in_session(session, replace(question, terms={}), [ADDRESS], top_k=60)
    expected = search_by_reference(items, question, SearchFilters(), fusion="anchored", alpha=0.0)
    weight = 1 - DEFAULT_ALPHA["anchored"]  # what is missing scores nothing
    assert [hit.combined_score for hit in words] == pytest.approx(
        sorted((weight * want.combined for want in expected.values()), reverse=True), abs=2e-4
    )
    assert [hit.cosine for hit in vector] == sorted((hit.cosine for hit in vector), reverse=True)


@pytest.mark.parametrize("query", ["", "   ", "\u200b"])
async def test_empty_query_lists_by_usefulness(runtime, tenant, query: str) -> None:
    await write(runtime, tenant.id, drafts(20, seed=11))
    question = await embed_query(runtime.default_embedder, query)
    assert question.is_empty
    async with runtime.sessions.for_tenant(tenant.id) as session:
        hits = await search_in_session(session, question, [ADDRESS], top_k=20)
        some = await search_in_session(
            session, question, [ADDRESS], filters=FILTERS["tags"], top_k=20
        )
    order = [(-hit.memory.usefulness, -hit.memory.importance, -hit.memory.seq) for hit in hits]
    assert order == sorted(order)
    assert len(hits) == 20
    assert {h.memory.id for h in some} == {
        h.memory.id for h in hits if {"net", "auth"} & set(h.memory.tags)
    }


async def test_empty_scope_has_no_results(runtime, tenant) -> None:
    question = await embed_query(runtime.default_embedder, "retry")
    nobody = EmbeddedQuery("a model nobody used", question.vector, question.terms)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await search_in_session(session, question, [ADDRESS]) == []
        assert await search_in_session(session, question, []) == []
    await write(runtime, tenant.id, drafts(3, seed=12))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await search_in_session(session, nobody, [ADDRESS]) == []
        unused = SearchFilters(tags=("a tag nobody used",))
        assert await search_in_session(session, question, [ADDRESS], filters=unused) == []


async def test_missing_leg_gives_no_rank_and_no_score(runtime, tenant) -> None:
    """Reciprocal rank fusion: one row has the word, the others live of the vector alone."""
    rows = drafts(40, seed=13)
    rows[7] = replace(rows[7], content="The quaxolotl waits for a seat")
    await write(runtime, tenant.id, rows)
    question = await embed_query(runtime.default_embedder, "quaxolotl")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        hits = await search_in_session(
            session, question, [ADDRESS], top_k=40, fusion="rrf", explain=True
        )
        nothing = await search_in_session(
            session,
            await embed_query(runtime.default_embedder, "zebra"),
            [ADDRESS],
            top_k=40,
            explain=True,
        )
    found = [hit for hit in hits if hit.bm25]
    assert [(hit.memory.id, hit.lexical_rank) for hit in found] == [(rows[7].id, 1)]
    assert found[0].bm25_score == pytest.approx(1 / 61)
    assert len(hits) == 40
    for hit in hits:
        if not hit.bm25:
            assert (hit.lexical_rank, hit.bm25_score) == (None, 0)
        if (hit.cosine or 0) <= 0:
            assert (hit.dense_rank, hit.vector_score) == (None, 0)
    assert {hit.lexical_rank for hit in nothing} == {None}
    assert {hit.explain()["why"] for hit in nothing} <= {"meaning", "usefulness"}


async def test_large_scope_ranks_nearest_candidates(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(2_300, seed=14))
    question = await embed_query(runtime.default_embedder, "retry after a timeout at the seat")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        hits = await search_in_session(
            session, question, [ADDRESS], top_k=150, fusion="rrf", explain=True
        )
    near = [hit for hit in hits if hit.dense_rank]
    far = [hit for hit in hits if not hit.dense_rank]
    assert near
    assert far
    assert max(hit.dense_rank or 0 for hit in near) <= 300
    assert min(hit.cosine or 0 for hit in near) >= max(hit.cosine or 0 for hit in far)
    for hit in hits:
        dense = 1 / (60 + hit.dense_rank) if hit.dense_rank else 0
        words = 1 / (60 + hit.lexical_rank) if hit.lexical_rank else 0
        assert hit.combined_score == pytest.approx((dense + words) / 2, abs=1e-6)
