"""Creates, updates and deletes one memory. Each change is a revision with its reason and actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.errors import Conflict, NotFound
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.index.writer import index_memories, insert_memories, unindex_memories
from memory_api.memories.queries import get_memory
from memory_api.memories.schemas import (
    CreateMemoryRequest,
    MemoryKind,
    MemoryStatus,
    UpdateMemoryRequest,
)
from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime
from memory_api.text.terms import TOKENIZER_VERSION

MAX_UPDATE_ATTEMPTS = 25  # in each round, one of the concurrent writers succeeds
TEXT_FIELDS = ("content", "title", "when_to_use", "keywords")


async def create_memory(
    runtime: Runtime, tenant_id: UUID, project_id: str, body: CreateMemoryRequest, actor: str
) -> MemoryRow:
    """Stores and indexes a memory from the API."""
    draft = MemoryDraft(
        kind=body.kind,
        project_id=project_id,
        actor=actor,
        is_guarded=True,
        **body.model_dump(exclude={"tenant_id", "project_id", "kind"}),
    )
    items = await prepare_memories(await runtime.get_tenant_embedder(tenant_id), [draft])
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await insert_memories(session, items)
        memory = await get_memory(session, draft.id)
        assert memory is not None, "just inserted"
        return memory


async def update_memory(
    runtime: Runtime, tenant_id: UUID, memory_id: UUID, patch: UpdateMemoryRequest, actor: str
) -> MemoryRow:
    """Applies a patch. Raises `NotFound`, and `Conflict` for a bullet of a playbook or if
    concurrent changes do not stop.
    """
    fields = patch.model_dump(exclude_unset=True, exclude={"reason", "tenant_id"})
    for _ in range(MAX_UPDATE_ATTEMPTS):
        async with runtime.sessions.for_tenant(tenant_id) as session:
            before = await get_memory(session, memory_id)
        if before is None:
            raise NotFound("Memory not found.")
        _reject_bullet(before)
        embedder = await runtime.get_tenant_embedder(tenant_id)
        items = await prepare_memories(embedder, [_draft(before, fields)])
        async with runtime.sessions.for_tenant(tenant_id) as session:
            memory = await get_memory(session, memory_id, for_update=True)
            if memory is None:
                raise NotFound("Memory not found.")
            if memory.revision == before.revision:
                await rewrite_memory(
                    session, memory, items[0], fields, reason=patch.reason, actor=actor
                )
                return memory
        # The memory has changed since it was read, so the embedding may be stale.
    raise Conflict("Too many concurrent changes of this memory. Try again.")


async def rewrite_memory(
    session: AsyncSession,
    memory: MemoryRow,
    item: PreparedMemory,
    fields: Mapping[str, Any],
    *,
    reason: str | None,
    actor: str | None,
    run_id: UUID | None = None,
) -> None:
    """Sets columns of a locked memory and indexes it with the text and vectors of `item`."""
    await unindex_memories(session, [memory])
    if "status" in fields:
        memory.awaiting_confirmation = False
    for name, value in fields.items():
        setattr(memory, name, value)
    memory.searchable_text = item.draft.searchable_text
    memory.terms, memory.tokenizer = sorted(item.weights), TOKENIZER_VERSION
    memory.fingerprint = item.fingerprint
    memory.change_reason, memory.change_actor, memory.change_run_id = reason, actor, run_id
    await session.flush()
    await session.refresh(memory)
    await index_memories(session, [memory], [item])


async def delete_memory(
    runtime: Runtime, tenant_id: UUID, memory_id: UUID, actor: str, reason: str | None = None
) -> None:
    """Sets the status `deleted`: removes the memory from search and lists, but not its revisions.
    Raises `NotFound`, and `Conflict` for a bullet of a playbook.
    """
    async with runtime.sessions.for_tenant(tenant_id) as session:
        memory = await get_memory(session, memory_id, for_update=True)
        if memory is None:
            raise NotFound("Memory not found.")
        _reject_bullet(memory)
        await unindex_memories(session, [memory])
        memory.status = MemoryStatus.DELETED
        memory.change_reason, memory.change_actor, memory.change_run_id = reason, actor, None


def _reject_bullet(memory: MemoryRow) -> None:
    if memory.playbook_version is not None:
        raise Conflict(f"'{memory.key}' is a bullet. Change it through its playbook.")


def _draft(memory: MemoryRow, fields: dict[str, Any]) -> MemoryDraft:
    current = MemoryDraft(
        kind=MemoryKind(memory.kind),
        project_id=memory.project_id,
        content=memory.content,
        title=memory.title,
        when_to_use=memory.when_to_use,
        keywords=memory.keywords,
    )
    return replace(current, **{name: fields[name] for name in TEXT_FIELDS if name in fields})
