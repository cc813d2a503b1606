"""Statements on erasures."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.auth.queries import tenant_exists
from memory_api.core.db import current_tenant_id
from memory_api.core.errors import NotFound
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.erasures.schemas import CreateErasureRequest, ErasureTarget
from memory_api.erasures.tables import ErasureRow
from memory_api.memories.queries import get_memory
from memory_api.memories.tables import MemoryRow
from memory_api.traces.queries import get_trace


async def require_target(session: AsyncSession, body: CreateErasureRequest) -> None:
    """Raises `NotFound` if there is nothing to erase. A person may have no data."""
    exists = True
    match body.target_kind:
        case ErasureTarget.MEMORY:
            memory = await get_memory(session, UUID(body.target_id), include_deleted=True)
            exists = memory is not None
        case ErasureTarget.TRACE:
            exists = await _has_data_of_trace(session, UUID(body.target_id))
        case ErasureTarget.TENANT:
            exists = await tenant_exists(session)
        case ErasureTarget.PERSON:
            pass
    if not exists:
        raise NotFound(f"{body.target_kind.capitalize()} not found.")


async def _has_data_of_trace(session: AsyncSession, trace_id: UUID) -> bool:
    """Whether the trace or, if it was deleted, a memory that was learned from it is stored."""
    if await get_trace(session, trace_id) is not None:
        return True
    learned = select(MemoryRow.id).where(
        MemoryRow.tenant_id == current_tenant_id(session), MemoryRow.trace_id == trace_id
    )
    return await session.scalar(learned.limit(1)) is not None


async def get_erasure(session: AsyncSession, erasure_id: UUID) -> ErasureRow | None:
    return await session.get(ErasureRow, (current_tenant_id(session), erasure_id))


async def list_erasures(
    session: AsyncSession, *, cursor: Cursor | None, limit: int
) -> Sequence[ErasureRow]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(ErasureRow).where(ErasureRow.tenant_id == current_tenant_id(session))
    query = keyset_page(query, ErasureRow.created_at, ErasureRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()
