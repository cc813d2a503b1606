"""What is served is always what is active: vectors, postings and counts after any sequence."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest
from sqlalchemy import func, select

from memory_api.core.errors import NotFound
from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.memories.editing import create_memory, delete_memory, update_memory
from memory_api.memories.index.drafts import prepare_memories
from memory_api.memories.index.writer import insert_memories, unindex_memories
from memory_api.memories.schemas import (
    CreateMemoryRequest,
    MemoryKind,
    MemoryStatus,
    UpdateMemoryRequest,
)
from memory_api.memories.tables import (
    LabelRow,
    MemoryRevisionRow,
    MemoryRow,
    MemoryVectorRow,
    PostingRow,
    ScopeRow,
    ScopeStatRow,
)
from memory_api.runtime import Runtime
from tests.support.reference_search import TAGS, WORDS, drafts, write


async def assert_in_step(runtime: Runtime, tenant_id: UUID) -> list[MemoryRow]:
    """Fails unless exactly the active memories are served, as they are now."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        memories = list(
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant_id))
        )
        vectors = list(
            await session.scalars(
                select(MemoryVectorRow).where(MemoryVectorRow.tenant_id == tenant_id)
            )
        )
        terms: dict[int, set[int]] = {}
        for n, term in await session.execute(
            select(PostingRow.seq, PostingRow.term_id).where(PostingRow.tenant_id == tenant_id)
        ):
            terms.setdefault(n, set()).add(term)
        counted = await session.execute(
            select(ScopeStatRow.scope_id, func.sum(ScopeStatRow.delta))
            .where(ScopeStatRow.tenant_id == tenant_id)
            .group_by(ScopeStatRow.scope_id)
        )
        counts = {scope: total for scope, total in counted if total}
        named = await session.execute(
            select(LabelRow.id, LabelRow.name).where(
                LabelRow.tenant_id == tenant_id, LabelRow.type == "tag"
            )
        )
        names = {number: name for number, name in named}  # noqa: C416
    active = {memory.seq: memory for memory in memories if memory.status == MemoryStatus.ACTIVE}
    assert sorted(vector.seq for vector in vectors) == sorted(active)
    for vector in vectors:
        memory = active[vector.seq]
        assert vector.scope_id == memory.scope_id
        assert vector.importance == pytest.approx(memory.importance)
        assert vector.confidence == pytest.approx(memory.confidence_score)
        assert {names[tag] for tag in vector.tag_label_ids} == set(memory.tags)
    assert terms == {n: set(memory.terms) for n, memory in active.items() if memory.terms}
    expected: dict[int, int] = {}
    for memory in active.values():
        expected[memory.scope_id] = expected.get(memory.scope_id, 0) + 1
    assert counts == expected
    return memories


@pytest.mark.parametrize("seed", range(6))
async def test_index_matches_active_memories_after_any_changes(runtime, tenant, seed: int) -> None:
    choose = random.Random(seed)
    known: list[UUID] = []
    for _ in range(30):
        words = " ".join(choose.choices(WORDS, k=choose.randint(1, 6)))
        act = choose.choice(["bring", "bring", "patch", "patch", "status", "remove", "twice"])
        if act == "bring" or not known:
            body = CreateMemoryRequest(
                content=words, kind=choose.choice(list(MemoryKind)), tags=choose.sample(TAGS, 2)
            )
            known.append((await create_memory(runtime, tenant.id, "p", body, "tester")).id)
            continue
        memory_id = choose.choice(known)
        patches = {
            "patch": choose.choice(
                [
                    {"content": words},
                    {"tags": choose.sample(TAGS, choose.randint(0, 4))},
                    {"importance": choose.random()},
                    {"title": words, "keywords": words.split()},
                ]
            ),
            "status": {"status": choose.choice(["active", "quarantined", "archived"])},
            "twice": {"status": "active"},
        }
        try:
            if act == "remove":
                await delete_memory(runtime, tenant.id, memory_id, "tester")
            else:
                patch = UpdateMemoryRequest.model_validate(patches[act])
                await update_memory(runtime, tenant.id, memory_id, patch, "tester")
        except NotFound:
            known.remove(memory_id)
    await assert_in_step(runtime, tenant.id)


async def test_released_memory_is_found_again(runtime, api, tenant) -> None:
    made = (await api.post("/api/v1/memories", json={"content": "Quarantine me"})).json()
    path = f"/api/v1/memories/{made['id']}"
    for status, found in (("quarantined", 0), ("active", 1), ("archived", 0), ("active", 1)):
        (await api.patch(path, json={"status": status})).raise_for_status()
        hits = (await api.post("/api/v1/search", json={"query_text": "quarantine"})).json()
        assert len(hits["results"]) == found
        await assert_in_step(runtime, tenant.id)
    await api.delete(path)
    assert (await assert_in_step(runtime, tenant.id))[0].status == "deleted"


async def test_concurrent_changes_keep_index_consistent(runtime, tenant) -> None:
    made = await create_memory(
        runtime, tenant.id, "p", CreateMemoryRequest(content="before"), "tester"
    )
    patches = [UpdateMemoryRequest(content=f"after {n}") for n in range(5)]
    patches += [UpdateMemoryRequest(status="archived"), UpdateMemoryRequest(status="active")]
    await asyncio.gather(
        *(update_memory(runtime, tenant.id, made.id, p, "tester") for p in patches)
    )
    memories = await assert_in_step(runtime, tenant.id)
    assert memories[0].revision >= 6


async def test_concurrent_writers_share_new_labels(runtime, tenant) -> None:
    """Scopes and labels that many ask for at once are made once."""

    async def one(number: int) -> None:
        await write(runtime, tenant.id, drafts(6, seed=number, scopes=4))

    await asyncio.gather(*(one(number) for number in range(8)))
    memories = await assert_in_step(runtime, tenant.id)
    assert len(memories) == 48
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for table, names in (
            (ScopeRow, (ScopeRow.type, ScopeRow.name)),
            (LabelRow, (LabelRow.type, LabelRow.name)),
        ):
            rows = (await session.execute(select(*names).where(table.tenant_id == tenant.id))).all()
            assert len(rows) == len(set(rows))


async def test_failed_write_indexes_nothing(runtime, tenant) -> None:
    items = await prepare_memories(TenantEmbedder(runtime.default_embedder), drafts(3, seed=1))

    async def write_and_break() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await insert_memories(session, items)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await write_and_break()
    assert await assert_in_step(runtime, tenant.id) == []


async def test_labels_of_rolled_back_savepoint_are_created_again(runtime, tenant) -> None:
    items = await prepare_memories(TenantEmbedder(runtime.default_embedder), drafts(4, seed=1))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        nested = await session.begin_nested()
        await insert_memories(session, items[:2])
        await nested.rollback()
        await insert_memories(session, items[2:])
    assert len(await assert_in_step(runtime, tenant.id)) == 2


async def test_unindexing_twice_counts_once(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(3, seed=1))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        memories = list(
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        )
        for _ in range(2):
            await unindex_memories(session, memories)
        for memory in memories:
            memory.status = "archived"
    await assert_in_step(runtime, tenant.id)


async def test_batch_insert_writes_first_revisions(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(300, seed=2, scopes=3))
    assert len(await assert_in_step(runtime, tenant.id)) == 300
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.scalars(
            select(MemoryRevisionRow.revision).where(MemoryRevisionRow.tenant_id == tenant.id)
        )
        assert list(rows) == [1] * 300


async def test_empty_insert_does_nothing(runtime, tenant) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await insert_memories(session, []) == []
    assert await prepare_memories(TenantEmbedder(runtime.default_embedder), []) == []
