"""The same lesson, learnt by two runs at the same moment, is one memory with two observations."""

from __future__ import annotations

import asyncio
from uuid import UUID

from sqlalchemy import select

from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.queries import add_observation
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.tables import MemoryRow
from memory_api.reflection.lesson_storage import SavedLesson, save_lessons
from memory_api.runtime import Runtime
from tests.conftest import TestTenant


async def test_concurrent_equal_lessons_become_one_memory(runtime, tenant) -> None:
    drafts = [MemoryDraft(MemoryKind.REFLECTION, "default", "Look before you leap")]
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
    both = asyncio.Barrier(4)

    async def say() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(select(1))  # the transaction has begun
            await both.wait()
            await save_lessons(session, items)

    await asyncio.gather(*(say() for _ in range(4)))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        told = (
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        ).all()
    assert [memory.observation_count for memory in told] == [4]


LONG = (
    "Before calling book_flight, read the fare, the cabin, the passengers, the payment method, the"
    " baggage allowance of the reservation, and compare the departure airport, the arrival airport,"
    " the travel date, the membership and the insurance with the request of the customer."
)


async def test_concurrent_lessons_in_the_same_words_become_one_memory(
    runtime: Runtime, tenant: TestTenant
) -> None:
    texts = [LONG, LONG.replace(", read the fare", ": Read the fare")]
    drafts = [MemoryDraft(MemoryKind.STRATEGY, "default", text, is_guarded=True) for text in texts]
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
    both = asyncio.Barrier(2)

    async def save(item: PreparedMemory) -> SavedLesson:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await both.wait()
            return (await save_lessons(session, [item]))[0]

    saved = await asyncio.gather(*map(save, items))
    assert len({lesson.memory_id for lesson in saved}) == 1
    assert [lesson.is_new for lesson in saved].count(True) == 1


async def test_different_lessons_do_not_wait_for_each_other(
    runtime: Runtime, tenant: TestTenant
) -> None:
    texts = ["Look before you leap", LONG, "Ask for the number of the order"]
    drafts = [MemoryDraft(MemoryKind.STRATEGY, "default", text, is_guarded=True) for text in texts]
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await save_lessons(session, items[:1])  # the label of the model
    async with runtime.sessions.for_tenant(tenant.id) as first:
        await save_lessons(first, items[1:2])
        async with asyncio.timeout(10), runtime.sessions.for_tenant(tenant.id) as second:
            assert (await save_lessons(second, items[2:]))[0].is_new


async def test_transactions_change_known_lessons_in_one_order(
    runtime: Runtime, tenant: TestTenant
) -> None:
    """Each repeats the lesson that the other confirms."""
    texts = ["Look before you leap", "Ask for the number of the order"]
    drafts = [MemoryDraft(MemoryKind.STRATEGY, "default", text, is_guarded=True) for text in texts]
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        ids = [lesson.memory_id for lesson in await save_lessons(session, items)]
    both = asyncio.Barrier(2)

    async def save(item: PreparedMemory, other: UUID) -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await both.wait()
            await save_lessons(session, [item], confirmed=[other])
            await asyncio.sleep(0.1)
            await add_observation(session, [other])

    await asyncio.gather(*map(save, items, reversed(ids)))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = (
            await session.scalars(select(MemoryRow).where(MemoryRow.tenant_id == tenant.id))
        ).all()
    assert [memory.observation_count for memory in rows] == [3, 3]
