"""The same lesson, learnt by two runs at the same moment, is one memory with two witnesses."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.tables import Memory
from apps.memory_api.reflection.store import keep


async def test_one_memory_with_a_witness_each(runtime, tenant) -> None:
    drafts = [Draft(Kind.REFLECTION, "default", "Look before you leap")]
    items = await prepare(await runtime.embedder_of(tenant.id), drafts)
    both = asyncio.Barrier(4)

    async def say() -> None:
        async with runtime.sessions.tenant(tenant.id) as session:
            await session.execute(select(1))  # the transaction has begun
            await both.wait()
            await keep(session, items)

    await asyncio.gather(*(say() for _ in range(4)))
    async with runtime.sessions.tenant(tenant.id) as session:
        told = (await session.scalars(select(Memory).where(Memory.tenant_id == tenant.id))).all()
    assert [memory.witnesses for memory in told] == [4]
