"""Reading and changing single memories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.cursor import Cursor, after
from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.scopes import Address, find_scopes
from apps.memory_api.memory.tables import (
    Memory,
    MemoryLink,
    MemoryRevision,
    MemoryVector,
    ScopeStat,
)

LINKS = load(__file__, "links.sql")
SAME = load(__file__, "find_same.sql")
_KEYED = select(Memory).where(
    Memory.tenant_id == bindparam("tenant"),
    Memory.scope == bindparam("scope"),
    Memory.key == bindparam("key"),
)
WITNESSED = load(__file__, "add_witness.sql")


async def get_memory(
    session: AsyncSession, memory_id: UUID, *, for_update: bool = False, deleted: bool = False
) -> Memory | None:
    """A memory that is not deleted, or (`deleted`) whether it is or not."""
    query = select(Memory).where(Memory.tenant_id == tenant_of(session), Memory.id == memory_id)
    if not deleted:
        query = query.where(Memory.status != Status.DELETED)
    return await session.scalar(query.with_for_update() if for_update else query)


async def list_memories(
    session: AsyncSession,
    *,
    project_id: str,
    kinds: Sequence[str] = (),
    layers: Sequence[str] = (),
    status: str = Status.ACTIVE,
    tags: Sequence[str] = (),
    trace_id: UUID | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[Memory]:
    """Newest first; one row more than `limit` when there is a next page."""
    query = select(Memory).where(
        Memory.tenant_id == tenant_of(session),
        Memory.project_id == project_id,
        Memory.status == status,
    )
    if kinds:
        query = query.where(Memory.kind.in_(kinds))
    if layers:
        query = query.where(Memory.layer.in_(layers))
    if tags:
        query = query.where(Memory.tags.overlap(list(tags)))
    if trace_id is not None:
        query = query.where(Memory.trace_id == trace_id)
    query = after(query, Memory.created_at, Memory.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def list_revisions(session: AsyncSession, memory_id: UUID) -> Sequence[MemoryRevision]:
    """A memory's whole history, oldest first."""
    rows = await session.scalars(
        select(MemoryRevision)
        .where(
            MemoryRevision.tenant_id == tenant_of(session), MemoryRevision.memory_id == memory_id
        )
        .order_by(MemoryRevision.revision)
    )
    return rows.all()


async def list_links(session: AsyncSession, memory_id: UUID) -> Sequence[MemoryLink]:
    """What a memory is linked to, and what is linked to it."""
    rows = await session.scalars(
        select(MemoryLink)
        .where(
            MemoryLink.tenant_id == tenant_of(session),
            or_(MemoryLink.source_id == memory_id, MemoryLink.target_id == memory_id),
        )
        .order_by(MemoryLink.created_at, MemoryLink.relation, MemoryLink.target_id)
        .limit(1000)
    )
    return rows.all()


class Link(NamedTuple):
    """From a memory to another, or to a trace."""

    source: UUID
    relation: str
    kind: Literal["memory", "trace"]
    target: UUID


async def link(session: AsyncSession, links: Iterable[Link]) -> int:
    """Add links in one statement; those that exist stay. Answers how many are new."""
    wanted = list(dict.fromkeys(links))
    if not wanted:
        return 0
    sources, relations, kinds, targets = zip(*wanted, strict=True)
    made = await session.execute(
        LINKS,
        {
            "tenants": [tenant_of(session)] * len(wanted),
            "sources": sources,
            "relations": relations,
            "kinds": kinds,
            "targets": targets,
        },
    )
    return len(made.all())


Saying = tuple[int, bytes]
"""A scope and the fingerprint of a text."""


async def find_same(session: AsyncSession, sayings: Collection[Saying]) -> dict[Saying, UUID]:
    """The first memory of a scope that says exactly this, for those texts that one says."""
    if not sayings:
        return {}
    scopes, fingerprints = zip(*sayings, strict=True)
    given = {"tenant": tenant_of(session), "scopes": scopes, "fingerprints": fingerprints}
    found = await session.execute(SAME, given)
    return {(scope, bytes(said)): identity for scope, said, identity in found}


async def find_key(session: AsyncSession, address: Address, key: str) -> Memory | None:
    """The memory of a scope under its key, deleted or not."""
    scope = (await find_scopes(session, [address])).get(address)
    if scope is None:
        return None
    given = {"tenant": tenant_of(session), "scope": scope, "key": key}
    return await session.scalar(_KEYED, given)


async def add_witness(session: AsyncSession, memory_ids: Collection[UUID]) -> None:
    """One more run says the same as these."""
    if memory_ids:
        await session.execute(WITNESSED, {"tenant": tenant_of(session), "ids": list(memory_ids)})


async def count_served(session: AsyncSession) -> dict[int, int]:
    """How many memories each scope serves."""
    rows = await session.execute(
        select(ScopeStat.scope, func.sum(ScopeStat.delta))
        .where(ScopeStat.tenant_id == tenant_of(session))
        .group_by(ScopeStat.scope)
    )
    return {scope: int(size) for scope, size in rows}


async def served_models(session: AsyncSession, scopes: Sequence[int]) -> dict[tuple[int, int], int]:
    """(scope, model) → dimensions, of the models under which these scopes have vectors."""
    tenant = tenant_of(session)
    found: dict[tuple[int, int], int] = {}
    for scope in scopes:
        rows = await session.execute(
            select(MemoryVector.model, func.max(func.vector_dims(MemoryVector.emb)))
            .where(MemoryVector.tenant_id == tenant, MemoryVector.scope == scope)
            .group_by(MemoryVector.model)
        )
        found |= {(scope, model): dimensions for model, dimensions in rows}
    return found
