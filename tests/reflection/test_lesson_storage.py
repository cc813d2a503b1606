"""The same lesson, learnt by two runs at the same moment, is one memory with two observations."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from apps.memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from apps.memory_api.memories.schemas import MemoryKind
from apps.memory_api.memories.tables import MemoryRow
from apps.memory_api.reflection.lesson_storage import save_lessons


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
