"""A tenant with memories, and processes that know of a move a little late, as real ones do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from apps.memory_api.embeddings.loaded import Embedders, Spec
from apps.memory_api.embeddings.tables import EmbeddingModel
from apps.memory_api.embeddings.tenant import TenantModels
from apps.memory_api.jobs import runs
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.find import ask, search_once
from apps.memory_api.memory.found import Hit
from apps.memory_api.memory.prepare import Draft, prepare
from apps.memory_api.memory.put import put
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.scopes import kind_scope
from apps.memory_api.memory.tables import Label, MemoryVector
from apps.memory_api.runtime import Runtime
from apps.memory_api.workers import reembed

LATE = 0.3
"""Seconds until a process of these tests notices a change."""
SETTLE = timedelta(seconds=2 * LATE)
HERE = kind_scope("p", Kind.INSIGHT)


OPENED: list[Runtime] = []
"""The processes of one test."""


async def close_all() -> None:
    while OPENED:
        await OPENED.pop().models.embedders.aclose()


def process(runtime: Runtime, name: str = "other", seconds: float = LATE) -> Runtime:
    """Another process on the same database."""
    made = Runtime(runtime.settings, runtime.sessions, runtime.embedder, runtime.queue, name=name)
    embedders = Embedders(made.settings, made.embedder)
    vars(made)["models"] = TenantModels(made.sessions, embedders, seconds=seconds)
    OPENED.append(made)
    return made


def insights(count: int, start: int = 0) -> list[Draft]:
    return [
        Draft(kind=Kind.INSIGHT, project_id="p", content=f"Lesson {n}: retry page{n} with cursor")
        for n in range(start, start + count)
    ]


async def remember(runtime: Runtime, tenant_id: UUID, drafts: list[Draft]) -> None:
    items = await prepare(await runtime.embedder_of(tenant_id), drafts)
    async with runtime.sessions.tenant(tenant_id) as session:
        await put(session, items)


async def find(runtime: Runtime, tenant_id: UUID, text: str, top_k: int = 5) -> list[Hit]:
    question = await ask(await runtime.embedder_of(tenant_id), text)
    found = await search_once(runtime.sessions, tenant_id, question, [HERE], top_k=top_k)
    return found.hits


async def vectors(runtime: Runtime, tenant_id: UUID) -> dict[str, int]:
    """Model → how many vectors."""
    async with runtime.sessions.tenant(tenant_id) as session:
        rows = await session.execute(
            select(Label.name, func.count())
            .join(
                MemoryVector,
                (MemoryVector.tenant_id == Label.tenant_id) & (MemoryVector.model == Label.id),
            )
            .where(Label.tenant_id == tenant_id, Label.space == "model")
            .group_by(Label.name)
        )
        return {row[0]: row[1] for row in rows}


async def states(runtime: Runtime, tenant_id: UUID) -> dict[str, str]:
    async with runtime.sessions.tenant(tenant_id) as session:
        rows = await session.scalars(
            select(EmbeddingModel).where(EmbeddingModel.tenant_id == tenant_id)
        )
        return {row.label: row.state for row in rows}


@dataclass
class Mover:
    """The process that moves."""

    runtime: Runtime
    tenant_id: UUID

    async def start(self, spec: Spec) -> Run:
        run = await reembed.start(self.runtime, self.tenant_id, spec)
        assert run is not None
        return run

    async def go_on(self, run: Run, **how: Any) -> None:
        """Hold the run and do it."""
        async with self.runtime.sessions.tenant(self.tenant_id) as session:
            claim = await runs.claim(session, run.id, "mover", timedelta(minutes=5))
        assert claim.run is not None
        how = {"settle": SETTLE, **how}
        await reembed.run(self.runtime, claim.run, **how)

    async def move(self, spec: Spec, **how: Any) -> None:
        await self.go_on(await self.start(spec), **how)
