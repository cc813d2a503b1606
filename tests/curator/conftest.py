"""One playbook of a fresh tenant, curated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from apps.memory_api.core.ids import new_id
from apps.memory_api.curator.run import Lesson, Merged, curate, merge
from apps.memory_api.curator.schemas import Curation
from apps.memory_api.curator.tables import CuratedLesson
from apps.memory_api.memory.tables import Memory, MemoryLink
from apps.memory_api.playbook.configure import configure
from apps.memory_api.playbook.edit import apply_to_rows
from apps.memory_api.playbook.queries import all_bullets, find_bullets, get_playbook, list_versions
from apps.memory_api.playbook.rows import Author, Place, to_bullet
from apps.memory_api.playbook.schemas import Bullet, DeltaContextItem
from apps.memory_api.playbook.tables import PlaybookRow
from apps.memory_api.playbook.usefulness import usefulness
from apps.memory_api.runtime import Runtime
from tests.conftest import TestTenant


def lesson(text: str, **more: Any) -> Lesson:
    """A lesson of a run of its own."""
    return Lesson(**{"text": text, "trace_id": new_id()} | more)


@dataclass
class Book:
    runtime: Runtime
    tenant_id: UUID
    place: Place = field(default_factory=lambda: Place("default", "book"))

    async def think(self, *lessons: Lesson, **more: Any) -> Curation:
        return await curate(self.runtime, self.tenant_id, self.place, lessons, run_id=None, **more)

    async def merge(self, curation: Curation, **more: Any) -> Merged:
        author = Author("curator", "learning")
        return await merge(self.runtime, self.tenant_id, self.place, curation, author, **more)

    async def learn(self, *lessons: Lesson) -> Merged:
        return await self.merge(await self.think(*lessons))

    async def add(self, *texts: str, **more: Any) -> Sequence[str]:
        deltas = [DeltaContextItem(type="ADD", content=text, **more) for text in texts]
        done = await apply_to_rows(
            self.runtime, self.tenant_id, self.place, deltas, Author("person")
        )
        return [result.key or "" for result in done.results]

    async def deltas(self, *deltas: DeltaContextItem) -> None:
        author = Author("person")
        await apply_to_rows(self.runtime, self.tenant_id, self.place, list(deltas), author)

    async def configure(self, **fields: Any) -> None:
        author = Author("person")
        await configure(self.runtime, self.tenant_id, self.place, fields, author)

    async def row(self) -> PlaybookRow:
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            found = await get_playbook(session, self.place)
            assert found is not None
            return found

    async def bullets(self) -> dict[str, Bullet]:
        playbook = await self.row()
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            rows = await all_bullets(session, playbook.scope)
            return {row.key: to_bullet(row) for row in rows}

    async def memory(self, key: str) -> Memory:
        playbook = await self.row()
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            return (await find_bullets(session, playbook.scope, [key]))[key]

    async def set(self, key: str, **values: Any) -> None:
        """Counters and the like, as evidence would have set them."""
        playbook = await self.row()
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            row = (await find_bullets(session, playbook.scope, [key], lock=True))[key]
            for name, value in values.items():
                setattr(row, name, value)
            row.usefulness = usefulness(row.helpful or 0, row.harmful or 0)

    async def versions(self) -> list[Any]:
        playbook = await self.row()
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            return list(await list_versions(session, playbook.scope, limit=1000))

    async def links(self, relation: str) -> list[tuple[UUID, UUID]]:
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            rows = await session.scalars(
                select(MemoryLink).where(
                    MemoryLink.tenant_id == self.tenant_id, MemoryLink.relation == relation
                )
            )
            return [(row.source_id, row.target_id) for row in rows]

    async def remembered(self) -> list[str]:
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            rows = await session.scalars(
                select(CuratedLesson.decision).where(CuratedLesson.tenant_id == self.tenant_id)
            )
            return sorted(rows)


@pytest.fixture
def book(runtime: Runtime, tenant: TestTenant) -> Book:
    return Book(replace(runtime, llm=None), tenant.id)
