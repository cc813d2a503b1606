"""A tenant with memories, and processes that cache the tenant's models, as real processes do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from memory_api.embeddings.registry import EmbedderCache, EmbedderSpec
from memory_api.embeddings.tables import EmbeddingModelRow
from memory_api.embeddings.tenant_models import TenantEmbeddingModels
from memory_api.maintenance import reembedding
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.scopes import kind_scope
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import SearchHit
from memory_api.memories.search.search import search_memories
from memory_api.memories.tables import LabelRow, MemoryVectorRow
from memory_api.runs import lifecycle
from memory_api.runs.execution import execute_step
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime

OLD, NEW_MODEL, NEW_DIMENSIONS = "static-minilm-256/1", "embed-b", 64
NEW = f"openai/{NEW_MODEL}@{NEW_DIMENSIONS}"
"""Labels of the models before and after the move."""
CACHE_SECONDS = 0.3
"""How long a process of these tests caches which models a tenant uses."""
GRACE = timedelta(seconds=2 * CACHE_SECONDS)
SCOPE = kind_scope("p", MemoryKind.INSIGHT)

OPENED: list[Runtime] = []
"""The processes of the current test."""


async def close_all() -> None:
    while OPENED:
        await OPENED.pop().embedding_models.embedder_cache.aclose()


def other_process(runtime: Runtime, name: str = "other", seconds: float = CACHE_SECONDS) -> Runtime:
    """Another process on the same database."""
    embedders = EmbedderCache(runtime.settings, runtime.default_embedder)
    models = TenantEmbeddingModels(runtime.sessions, embedders, cache_seconds=seconds)
    made = replace(runtime, embedding_models=models, process_name=name)
    OPENED.append(made)
    return made


def insight_drafts(count: int, start: int = 0) -> list[MemoryDraft]:
    return [
        MemoryDraft(
            kind=MemoryKind.INSIGHT,
            project_id="p",
            is_guarded=True,
            content=f"Lesson {n}: retry page{n} with cursor",
        )
        for n in range(start, start + count)
    ]


async def store_drafts(runtime: Runtime, tenant_id: UUID, drafts: list[MemoryDraft]) -> None:
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant_id), drafts)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await insert_memories(session, items)


async def find(runtime: Runtime, tenant_id: UUID, text: str, top_k: int = 5) -> list[SearchHit]:
    embedder = await runtime.get_tenant_embedder(tenant_id)
    found = await search_memories(runtime.sessions, embedder, tenant_id, text, [SCOPE], top_k=top_k)
    return found.hits


async def vector_counts(runtime: Runtime, tenant_id: UUID) -> dict[str, int]:
    """Model → number of vectors."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        rows = await session.execute(
            select(LabelRow.name, func.count())
            .join(
                MemoryVectorRow,
                (MemoryVectorRow.tenant_id == LabelRow.tenant_id)
                & (MemoryVectorRow.model_label_id == LabelRow.id),
            )
            .where(LabelRow.tenant_id == tenant_id, LabelRow.type == "model")
            .group_by(LabelRow.name)
        )
        return {row[0]: row[1] for row in rows}


async def model_states(runtime: Runtime, tenant_id: UUID) -> dict[str, str]:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        rows = await session.scalars(
            select(EmbeddingModelRow).where(EmbeddingModelRow.tenant_id == tenant_id)
        )
        return {row.label: row.state for row in rows}


@dataclass
class Mover:
    """The process that moves a tenant to another model."""

    runtime: Runtime
    tenant_id: UUID

    async def start(self, spec: EmbedderSpec) -> RunRow:
        run = await reembedding.start_reembedding(self.runtime, self.tenant_id, spec)
        assert run is not None
        return run

    async def execute(self, run: RunRow, **how: Any) -> None:
        """Claim the run and execute it."""
        async with self.runtime.sessions.for_tenant(self.tenant_id) as session:
            claim = await lifecycle.claim_run(session, run.id, "mover", timedelta(minutes=5))
        assert claim.run is not None
        how = {"grace": GRACE, **how}
        await execute_step(self.runtime, claim.run, reembedding.ReembedStep(**how))

    async def move(self, spec: EmbedderSpec, **how: Any) -> None:
        await self.execute(await self.start(spec), **how)
