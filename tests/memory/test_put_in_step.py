"""What is served is always what is active: vectors, postings and counts after any sequence."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID

import pytest
from sqlalchemy import func, select

from apps.memory_api.core.errors import NotFound
from apps.memory_api.memory.change import bring, change, remove
from apps.memory_api.memory.prepare import prepare
from apps.memory_api.memory.put import put, withdraw
from apps.memory_api.memory.schemas import Kind, MemoryPatch, NewMemory, Status
from apps.memory_api.memory.tables import (
    Label,
    Memory,
    MemoryRevision,
    MemoryVector,
    Posting,
    Scope,
    ScopeStat,
)
from apps.memory_api.runtime import Runtime
from tests.memory.world import TAGS, WORDS, drafts, write


async def assert_in_step(runtime: Runtime, tenant_id: UUID) -> list[Memory]:
    """Fails unless exactly the active memories are served, as they are now."""
    async with runtime.sessions.tenant(tenant_id) as session:
        memories = list(await session.scalars(select(Memory).where(Memory.tenant_id == tenant_id)))
        vectors = list(
            await session.scalars(select(MemoryVector).where(MemoryVector.tenant_id == tenant_id))
        )
        terms: dict[int, set[int]] = {}
        for n, term in await session.execute(
            select(Posting.n, Posting.term).where(Posting.tenant_id == tenant_id)
        ):
            terms.setdefault(n, set()).add(term)
        counted = await session.execute(
            select(ScopeStat.scope, func.sum(ScopeStat.delta))
            .where(ScopeStat.tenant_id == tenant_id)
            .group_by(ScopeStat.scope)
        )
        counts = {scope: total for scope, total in counted if total}
        named = await session.execute(
            select(Label.id, Label.name).where(Label.tenant_id == tenant_id, Label.space == "tag")
        )
        names = {number: name for number, name in named}  # noqa: C416
    active = {memory.n: memory for memory in memories if memory.status == Status.ACTIVE}
    assert sorted(vector.n for vector in vectors) == sorted(active)
    for vector in vectors:
        memory = active[vector.n]
        assert vector.scope == memory.scope
        assert vector.importance == pytest.approx(memory.importance)
        assert vector.confidence == pytest.approx(memory.confidence_score)
        assert {names[tag] for tag in vector.tag_ids} == set(memory.tags)
    assert terms == {n: set(memory.terms) for n, memory in active.items() if memory.terms}
    expected: dict[int, int] = {}
    for memory in active.values():
        expected[memory.scope] = expected.get(memory.scope, 0) + 1
    assert counts == expected
    return memories


@pytest.mark.parametrize("seed", range(6))
async def test_any_sequence_of_changes_stays_in_step(runtime, tenant, seed: int) -> None:
    choose = random.Random(seed)
    known: list[UUID] = []
    for _ in range(30):
        words = " ".join(choose.choices(WORDS, k=choose.randint(1, 6)))
        act = choose.choice(["bring", "bring", "patch", "patch", "status", "remove", "twice"])
        if act == "bring" or not known:
            body = NewMemory(
                content=words, kind=choose.choice(list(Kind)), tags=choose.sample(TAGS, 2)
            )
            known.append((await bring(runtime, tenant.id, "p", body, "tester")).id)
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
                await remove(runtime, tenant.id, memory_id, "tester")
            else:
                patch = MemoryPatch.model_validate(patches[act])
                await change(runtime, tenant.id, memory_id, patch, "tester")
        except NotFound:
            known.remove(memory_id)
    await assert_in_step(runtime, tenant.id)


async def test_a_released_memory_is_found_again(runtime, api, tenant) -> None:
    made = (await api.post("/api/v1/memories", json={"content": "Quarantine me"})).json()
    path = f"/api/v1/memories/{made['id']}"
    for status, found in (("quarantined", 0), ("active", 1), ("archived", 0), ("active", 1)):
        (await api.patch(path, json={"status": status})).raise_for_status()
        hits = (await api.post("/api/v1/search", json={"query_text": "quarantine"})).json()
        assert len(hits["results"]) == found
        await assert_in_step(runtime, tenant.id)
    await api.delete(path)
    assert (await assert_in_step(runtime, tenant.id))[0].status == "deleted"


async def test_changes_at_the_same_moment_stay_in_step(runtime, tenant) -> None:
    made = await bring(runtime, tenant.id, "p", NewMemory(content="before"), "tester")
    patches = [MemoryPatch(content=f"after {n}") for n in range(5)]
    patches += [MemoryPatch(status="archived"), MemoryPatch(status="active")]
    await asyncio.gather(*(change(runtime, tenant.id, made.id, p, "tester") for p in patches))
    memories = await assert_in_step(runtime, tenant.id)
    assert memories[0].revision >= 6


async def test_writers_of_the_same_new_names_agree(runtime, tenant) -> None:
    """Scopes and labels that many ask for at once are made once."""

    async def one(number: int) -> None:
        await write(runtime, tenant.id, drafts(6, seed=number, scopes=4))

    await asyncio.gather(*(one(number) for number in range(8)))
    memories = await assert_in_step(runtime, tenant.id)
    assert len(memories) == 48
    async with runtime.sessions.tenant(tenant.id) as session:
        for table, names in ((Scope, (Scope.area, Scope.name)), (Label, (Label.space, Label.name))):
            rows = (await session.execute(select(*names).where(table.tenant_id == tenant.id))).all()
            assert len(rows) == len(set(rows))


async def test_a_write_that_fails_serves_nothing(runtime, tenant) -> None:
    items = await prepare(runtime.embedder, drafts(3, seed=1))

    async def write_and_break() -> None:
        async with runtime.sessions.tenant(tenant.id) as session:
            await put(session, items)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await write_and_break()
    assert await assert_in_step(runtime, tenant.id) == []


async def test_names_made_in_a_savepoint_that_is_taken_back_are_made_again(runtime, tenant) -> None:
    items = await prepare(runtime.embedder, drafts(4, seed=1))
    async with runtime.sessions.tenant(tenant.id) as session:
        nested = await session.begin_nested()
        await put(session, items[:2])
        await nested.rollback()
        await put(session, items[2:])
    assert len(await assert_in_step(runtime, tenant.id)) == 2


async def test_withdrawing_twice_counts_once(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(3, seed=1))
    async with runtime.sessions.tenant(tenant.id) as session:
        memories = list(await session.scalars(select(Memory).where(Memory.tenant_id == tenant.id)))
        for _ in range(2):
            await withdraw(session, memories)
        for memory in memories:
            memory.status = "archived"
    await assert_in_step(runtime, tenant.id)


async def test_many_at_once_have_a_first_revision_each(runtime, tenant) -> None:
    await write(runtime, tenant.id, drafts(300, seed=2, scopes=3))
    assert len(await assert_in_step(runtime, tenant.id)) == 300
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = await session.scalars(
            select(MemoryRevision.revision).where(MemoryRevision.tenant_id == tenant.id)
        )
        assert list(rows) == [1] * 300


async def test_putting_nothing_is_nothing(runtime, tenant) -> None:
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await put(session, []) == []
    assert await prepare(runtime.embedder, []) == []
