"""What an older tokeniser indexed is indexed again, while search goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import delete, func, select, update

from apps.memory_api.memory.change import rewrite
from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Memory, Posting
from apps.memory_api.memory.terms import find_indexed, find_tokenizers, index_again
from apps.memory_api.runtime import Runtime
from apps.memory_api.text.tokens import TOKENIZER, document_weights
from apps.memory_api.workers import retokenise as module
from apps.memory_api.workers import upkeep
from apps.memory_api.workers.retokenise import is_older, retokenise
from tests.conftest import TestTenant
from tests.workers.moving import find, insights, remember

OLD = "hansei-terms/0"


async def spoil(runtime: Runtime, tenant: TestTenant, tokenizer: str = OLD) -> None:
    """As an older tokeniser would have left it: every memory under one other term."""
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = (await session.scalars(select(Memory).where(Memory.tenant_id == tenant.id))).all()
        await session.execute(delete(Posting).where(Posting.tenant_id == tenant.id))
        for row in rows:
            row.terms, row.tokenizer = [7], tokenizer
            if row.status == "active":
                session.add(
                    Posting(tenant_id=tenant.id, scope=row.scope, term=7, n=row.n, weight=1.0)
                )


async def postings(runtime: Runtime, tenant: TestTenant) -> dict[tuple[int, int], float]:
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = await session.execute(
            select(Posting.n, Posting.term, Posting.weight).where(Posting.tenant_id == tenant.id)
        )
        return {(row[0], row[1]): row[2] for row in rows}


async def tokenizers(runtime: Runtime, tenant: TestTenant) -> list[str]:
    async with runtime.sessions.tenant(tenant.id) as session:
        return list(await find_tokenizers(session))


async def test_it_becomes_as_if_written_today(
    runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    await remember(runtime, tenant.id, insights(25))
    written = await postings(runtime, tenant)
    found = [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")]
    await spoil(runtime, tenant)
    assert [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")] != found
    assert await retokenise(runtime, tenant.id) == 25
    assert await postings(runtime, tenant) == written
    assert [hit.bm25 for hit in await find(runtime, tenant.id, "page13 cursor")] == found
    assert await tokenizers(runtime, tenant) == [TOKENIZER]
    assert await retokenise(runtime, tenant.id) == 0


async def test_a_round_ends_and_the_next_goes_on(
    runtime: Runtime, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    monkeypatch.setattr(module, "MOST", 2)
    await remember(runtime, tenant.id, insights(10))
    await spoil(runtime, tenant)
    assert await retokenise(runtime, tenant.id) == 8
    assert await tokenizers(runtime, tenant) == [OLD, TOKENIZER]
    assert len(await find(runtime, tenant.id, "page1")) == 5, "search goes on between rounds"
    assert await retokenise(runtime, tenant.id) == 2


async def test_what_is_not_served_gets_no_postings(
    runtime: Runtime, tenant: TestTenant, api: Any
) -> None:
    await remember(runtime, tenant.id, insights(2))
    made = (await api.get("/api/v1/memories", params={"project_id": "p"})).json()["items"]
    (await api.delete(f"/api/v1/memories/{made[0]['id']}")).raise_for_status()
    await spoil(runtime, tenant)
    assert await retokenise(runtime, tenant.id) == 2
    assert len({n for n, _ in await postings(runtime, tenant)}) == 1
    revisions = (await api.get(f"/api/v1/memories/{made[1]['id']}/revisions")).json()["items"]
    assert len(revisions) == 1, "an index is no history"


async def test_upkeep_does_it_and_what_a_newer_release_wrote_is_left_alone(
    runtime: Runtime, tenant: TestTenant, worker_runtime: Runtime, drain: Any
) -> None:
    await remember(runtime, tenant.id, insights(3))
    await spoil(runtime, tenant)
    await upkeep.fan_out(worker_runtime)
    await drain(tenant.id)
    assert await tokenizers(runtime, tenant) == [TOKENIZER]
    for newer in ("hansei-terms/99", TOKENIZER):  # the last for those who look at all tenants
        async with runtime.sessions.tenant(tenant.id) as session:
            await session.execute(
                update(Memory).where(Memory.tenant_id == tenant.id).values(tokenizer=newer)
            )
        assert await retokenise(runtime, tenant.id) == 0
        assert await tokenizers(runtime, tenant) == [newer]


async def test_what_is_changed_meanwhile_keeps_its_own_terms(
    runtime: Runtime, tenant: TestTenant
) -> None:
    await remember(runtime, tenant.id, insights(2))
    await spoil(runtime, tenant)
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = await find_indexed(session, OLD, 10)
        memory = await session.scalar(
            select(Memory).where(Memory.tenant_id == tenant.id).order_by(Memory.n).limit(1)
        )
    assert memory is not None
    draft = Draft(kind=Kind.INSIGHT, project_id="p", content="Something else entirely")
    (item,) = await prepare(await runtime.embedder_of(tenant.id), [draft])
    async with runtime.sessions.tenant(tenant.id) as session:
        memory = await session.get_one(Memory, (tenant.id, memory.id))
        await rewrite(session, memory, item, {"content": draft.content}, reason=None, actor="me")
    weights = {row.n: document_weights(row.text) for row in rows}
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await index_again(session, OLD, TOKENIZER, rows, weights) == 1
        many = await session.scalar(
            select(func.count()).where(Posting.tenant_id == tenant.id, Posting.n == memory.n)
        )
    assert many == len(item.weights)


@given(st.integers(0, 999), st.integers(0, 999))
def test_a_later_version_of_the_same_name_is_not_older(ours: int, theirs: int) -> None:
    assert is_older(f"hansei-terms/{theirs}", f"hansei-terms/{ours}") is (theirs < ours)


@pytest.mark.parametrize("strange", ["t", "", "other/5", "hansei-terms/x", "hansei-terms/"])
def test_whatever_else_it_was_is_indexed_again(strange: str) -> None:
    assert is_older(strange, "hansei-terms/1")
