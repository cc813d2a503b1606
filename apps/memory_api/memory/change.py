"""Changing one memory: what it says, whether it is served. Each change is a revision with its
reason and actor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import Conflict, NotFound
from apps.memory_api.memory.prepare import Draft, Prepared, prepare
from apps.memory_api.memory.put import put, serve, withdraw
from apps.memory_api.memory.queries import get_memory
from apps.memory_api.memory.schemas import Kind, MemoryPatch, NewMemory, Status
from apps.memory_api.memory.tables import Memory
from apps.memory_api.runtime import Runtime
from apps.memory_api.text.tokens import TOKENIZER

TRIES = 25  # each round one of the rivals is through
TEXT_FIELDS = ("content", "title", "when_to_use", "keywords")


async def bring(
    runtime: Runtime, tenant_id: UUID, project_id: str, body: NewMemory, actor: str
) -> Memory:
    """Store a memory that the caller brings."""
    draft = Draft(
        kind=body.kind,
        project_id=project_id,
        actor=actor,
        **body.model_dump(exclude={"tenant_id", "project_id", "kind"}),
    )
    items = await prepare(await runtime.embedder_of(tenant_id), [draft])
    async with runtime.sessions.tenant(tenant_id) as session:
        await put(session, items)
        memory = await get_memory(session, draft.id)
        assert memory is not None, "just written"
        return memory


async def change(
    runtime: Runtime, tenant_id: UUID, memory_id: UUID, patch: MemoryPatch, actor: str
) -> Memory:
    """Apply a patch. Raises `NotFound`, and `Conflict` for a bullet of a playbook, or when others
    change the memory again and again meanwhile.
    """
    fields = patch.model_dump(exclude_unset=True, exclude={"reason", "tenant_id"})
    for _ in range(TRIES):
        async with runtime.sessions.tenant(tenant_id) as session:
            before = await get_memory(session, memory_id)
        if before is None:
            raise NotFound
        _refuse_bullet(before)
        embedder = await runtime.embedder_of(tenant_id)
        items = await prepare(embedder, [_draft(before, fields)])
        async with runtime.sessions.tenant(tenant_id) as session:
            memory = await get_memory(session, memory_id, for_update=True)
            if memory is None:
                raise NotFound
            if memory.revision == before.revision:
                await rewrite(session, memory, items[0], fields, reason=patch.reason, actor=actor)
                return memory
        # it was changed meanwhile: what was embedded may be stale
    raise Conflict("Others are changing this memory; try again.")


async def rewrite(
    session: AsyncSession,
    memory: Memory,
    item: Prepared,
    fields: Mapping[str, Any],
    *,
    reason: str | None,
    actor: str | None,
    run_id: UUID | None = None,
) -> None:
    """Set columns of a memory that is locked, and serve it as `item` says from now on."""
    await withdraw(session, [memory])
    for name, value in fields.items():
        setattr(memory, name, value)
    memory.searchable_text = item.draft.searchable_text
    memory.terms, memory.tokenizer = sorted(item.weights), TOKENIZER
    memory.fingerprint = item.fingerprint
    memory.change_reason, memory.change_actor, memory.change_run = reason, actor, run_id
    await session.flush()
    await session.refresh(memory)
    await serve(session, [memory], [item])


async def remove(
    runtime: Runtime, tenant_id: UUID, memory_id: UUID, actor: str, reason: str | None = None
) -> None:
    """Soft-delete: out of search and lists, its history kept. Raises `NotFound`, and `Conflict` for
    a bullet of a playbook.
    """
    async with runtime.sessions.tenant(tenant_id) as session:
        memory = await get_memory(session, memory_id, for_update=True)
        if memory is None:
            raise NotFound
        _refuse_bullet(memory)
        await withdraw(session, [memory])
        memory.status = Status.DELETED
        memory.change_reason, memory.change_actor, memory.change_run = reason, actor, None


def _refuse_bullet(memory: Memory) -> None:
    if memory.version is not None:
        raise Conflict(f"'{memory.key}' is a bullet: change it through its playbook.")


def _draft(memory: Memory, fields: dict[str, Any]) -> Draft:
    now = Draft(
        kind=Kind(memory.kind),
        project_id=memory.project_id,
        **{name: getattr(memory, name) for name in TEXT_FIELDS},
    )
    return replace(now, **{name: fields[name] for name in TEXT_FIELDS if name in fields})
