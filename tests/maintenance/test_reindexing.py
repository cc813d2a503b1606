"""What an older tokenizer indexed is indexed again, while search goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, update

from memory_api.maintenance import reindexing, upkeep
from memory_api.maintenance.reindexing import is_outdated, retokenize_tenant
from memory_api.memories.editing import rewrite_memory
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.reindex import find_indexed, find_tokenizers, replace_terms
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.tables import MemoryRow, PostingRow
from memory_api.runtime import Runtime
from memory_api.text.terms import TOKENIZER_VERSION, document_weights
from tests.conftest import TestTenant
from tests.support.cases import each_case
from tests.support.reembedding import find, insight_drafts, store_drafts

OLD = "hansei-terms/0"


async def spoil(runtime: Runtime, tenant: TestTenant, tokenizer: str = OLD) -> None:
    """As an older tokenizer would have left it: every memory under one other term."""
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = (
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        ).all()
        await session.execute(delete(PostingRow).where(PostingRow.tenant_id == tenant.id))
        for row in rows:
            row.terms, row.tokenizer = [7], tokenizer
            if row.status == "active":
                session.add(
                    PostingRow(
                        tenant_id=tenant.id,
                        scope_id=row.scope_id,
                        term_id=7,
                        seq=row.seq,
                        weight=1.0,
                    )
                )


async def postings(runtime: Runtime, tenant: TestTenant) -> dict[tuple[int, int], float]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(
            select(PostingRow.seq, PostingRow.term_id, PostingRow.weight).where(
                PostingRow.tenant_id == tenant.id
            )
        )
        return {(row[0], row[1]): row[2] for row in rows}


async def tokenizers(runtime: Runtime, tenant: TestTenant) -> list[str]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return list(await find_tokenizers(session))


async def test_reindexed_memory_equals_new_memory(
    runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindexing, "MEMORIES_PER_BATCH", 7)
    await store_drafts(runtime, tenant.id, insight_drafts(25))
    written = await postings(runtime, tenant)
    found = [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")]
    await spoil(runtime, tenant)
    assert [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")] != found
    assert await retokenize_tenant(runtime, tenant.id) == 25
    assert await postings(runtime, tenant) == written
    assert [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")] == found
    assert await tokenizers(runtime, tenant) == [TOKENIZER_VERSION]
    assert await retokenize_tenant(runtime, tenant.id) == 0


async def test_reindexing_continues_in_next_round(
    runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reindexing, "MEMORIES_PER_BATCH", 4)
    monkeypatch.setattr(reindexing, "MAX_BATCHES_PER_ROUND", 2)
    await store_drafts(runtime, tenant.id, insight_drafts(10))
    await spoil(runtime, tenant)
    assert await retokenize_tenant(runtime, tenant.id) == 8
    assert await tokenizers(runtime, tenant) == [OLD, TOKENIZER_VERSION]
    assert len(await find(runtime, tenant.id, "page1")) == 5, "search goes on between rounds"
    assert await retokenize_tenant(runtime, tenant.id) == 2


async def test_inactive_memory_gets_no_postings(
    runtime: Runtime, tenant: TestTenant, api: Any
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(2))
    made = (await api.get("/api/v1/memories", params={"project_id": "p"})).json()["items"]
    (await api.delete(f"/api/v1/memories/{made[0]['id']}")).raise_for_status()
    await spoil(runtime, tenant)
    assert await retokenize_tenant(runtime, tenant.id) == 2
    assert len({n for n, _ in await postings(runtime, tenant)}) == 1
    revisions = (await api.get(f"/api/v1/memories/{made[1]['id']}/revisions")).json()["items"]
    assert len(revisions) == 1, "an index is no history"


@pytest.mark.usefixtures("upkeep_of_test_tenants")
async def test_upkeep_reindexes_and_ignores_newer_tokenizer(
    runtime: Runtime, tenant: TestTenant, worker_runtime: Runtime, drain: Any
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(3))
    await spoil(runtime, tenant)
    await upkeep.enqueue_upkeep(worker_runtime)
    await drain(tenant.id)
    assert await tokenizers(runtime, tenant) == [TOKENIZER_VERSION]
    for newer in (
        "hansei-terms/99",
        TOKENIZER_VERSION,
    ):  # the last for those who look at all tenants
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(
                update(MemoryRow).where(MemoryRow.tenant_id == tenant.id).values(tokenizer=newer)
            )
        assert await retokenize_tenant(runtime, tenant.id) == 0
        assert await tokenizers(runtime, tenant) == [newer]


async def test_memory_changed_meanwhile_keeps_its_terms(
    runtime: Runtime, tenant: TestTenant
) -> None:
    await store_drafts(runtime, tenant.id, insight_drafts(2))
    await spoil(runtime, tenant)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await find_indexed(session, OLD, 10)
        memory = await session.scalar(
            select(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id)
            .order_by(MemoryRow.seq)
            .limit(1)
        )
    assert memory is not None
    draft = MemoryDraft(MemoryKind.INSIGHT, "p", "Something else entirely", is_guarded=True)
    (item,) = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), [draft])
    async with runtime.sessions.for_tenant(tenant.id) as session:
        memory = await session.get_one(MemoryRow, (tenant.id, memory.id))
        await rewrite_memory(
            session, memory, item, {"content": draft.content}, reason=None, actor="me"
        )
    weights = {row.seq: document_weights(row.text) for row in rows}
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await replace_terms(session, OLD, TOKENIZER_VERSION, rows, weights) == 1
        many = await session.scalar(
            select(func.count()).where(
                PostingRow.tenant_id == tenant.id, PostingRow.seq == memory.seq
            )
        )
    assert many == len(item.weights)


@given(st.integers(0, 999), st.integers(0, 999))
def test_later_tokenizer_version_is_not_reindexed(ours: int, theirs: int) -> None:
    assert is_outdated(f"hansei-terms/{theirs}", f"hansei-terms/{ours}") is (theirs < ours)


@each_case("strange", ["t", "", "other/5", "hansei-terms/x", "hansei-terms/"])
def test_any_other_tokenizer_is_reindexed(strange: str) -> None:
    assert is_outdated(strange, "hansei-terms/1")
