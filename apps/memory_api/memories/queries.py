"""Statements on memories, their links and revisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    bindparam,
    func,
    or_,
    select,
    tuple_,
)
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.pagination import Cursor, keyset_page
from memory_api.core.schemas import fold_tags
from memory_api.core.statements import compile_statement, fetch_rows, fetch_value, load_statement
from memory_api.memories.index.scopes import ScopeAddress, find_scopes
from memory_api.memories.schemas import MemoryStatus
from memory_api.memories.tables import (
    MemoryLinkRow,
    MemoryRevisionRow,
    MemoryRow,
    MemoryVectorRow,
    ScopeStatRow,
)

ADD_LINKS = load_statement("memories/queries.sql", "add_links")
FIND_SAME_TEXT = load_statement("memories/queries.sql", "find_same_text")
LOCK_MEMORIES = load_statement("memories/queries.sql", "lock_memories")
ADD_OBSERVATION = load_statement("memories/queries.sql", "add_observation")
RELATED_MEMORIES = load_statement("memories/queries.sql", "related_memories")
MAX_SEEDS = 10
"""The best results whose relations are followed."""
_ID_BY_KEY = compile_statement(
    select(MemoryRow.id).where(
        MemoryRow.tenant_id == bindparam("tenant"),
        MemoryRow.scope_id == bindparam("scope"),
        MemoryRow.key == bindparam("key"),
    )
)


async def get_memory(
    session: AsyncSession,
    memory_id: UUID,
    *,
    for_update: bool = False,
    include_deleted: bool = False,
) -> MemoryRow | None:
    query = select(MemoryRow).where(
        MemoryRow.tenant_id == current_tenant_id(session), MemoryRow.id == memory_id
    )
    if not include_deleted:
        query = query.where(MemoryRow.status != MemoryStatus.DELETED)
    return await session.scalar(query.with_for_update() if for_update else query)


async def get_memories(
    session: AsyncSession, memory_ids: Collection[UUID]
) -> dict[UUID, MemoryRow]:
    """ID → memory, for those that exist and are not deleted."""
    rows = await session.scalars(
        select(MemoryRow).where(
            MemoryRow.tenant_id == current_tenant_id(session),
            MemoryRow.id.in_(memory_ids),
            MemoryRow.status != MemoryStatus.DELETED,
        )
    )
    return {row.id: row for row in rows}


def has_any_tag(tags: Iterable[str]) -> ColumnElement[bool]:
    """The condition that a memory has one of these tags, in any case."""
    name = func.unnest(MemoryRow.tags).column_valued("tag_name")
    matching = select(name).where(func.lower(name).in_(fold_tags(tags)))
    return matching.correlate(MemoryRow).exists()


async def list_memories(
    session: AsyncSession,
    *,
    project_id: str,
    kinds: Sequence[str] = (),
    layers: Sequence[str] = (),
    statuses: Sequence[str] = (MemoryStatus.ACTIVE,),
    tags: Sequence[str] = (),
    trace_id: UUID | None = None,
    cursor: Cursor | None = None,
    limit: int = 50,
) -> Sequence[MemoryRow]:
    """Newest first. Returns `limit` + 1 rows if there is a next page."""
    query = select(MemoryRow).where(
        MemoryRow.tenant_id == current_tenant_id(session),
        MemoryRow.project_id == project_id,
        MemoryRow.status.in_(statuses),
    )
    if kinds:
        query = query.where(MemoryRow.kind.in_(kinds))
    if layers:
        query = query.where(MemoryRow.layer.in_(layers))
    if tags:
        query = query.where(has_any_tag(tags))
    if trace_id is not None:
        query = query.where(MemoryRow.trace_id == trace_id)
    query = keyset_page(query, MemoryRow.created_at, MemoryRow.id, cursor)
    return (await session.scalars(query.limit(limit + 1))).all()


async def list_revisions(
    session: AsyncSession, memory_id: UUID, *, after: int | None = None, limit: int = 50
) -> Sequence[MemoryRevisionRow]:
    """The revisions of a memory after revision `after`, oldest first; one row more than `limit`
    when there is a next page.
    """
    query = select(MemoryRevisionRow).where(
        MemoryRevisionRow.tenant_id == current_tenant_id(session),
        MemoryRevisionRow.memory_id == memory_id,
    )
    if after is not None:
        query = query.where(MemoryRevisionRow.revision > after)
    rows = await session.scalars(query.order_by(MemoryRevisionRow.revision).limit(limit + 1))
    return rows.all()


LinkPosition = tuple[datetime, str, UUID, UUID]
"""The position of a link in its list: created_at, relation, target_id, source_id."""


async def list_links(
    session: AsyncSession, memory_id: UUID, *, after: LinkPosition | None = None, limit: int = 50
) -> Sequence[MemoryLinkRow]:
    """Links from and to a memory, oldest first; one row more than `limit` when there is a next
    page.
    """
    order = (
        MemoryLinkRow.created_at,
        MemoryLinkRow.relation,
        MemoryLinkRow.target_id,
        MemoryLinkRow.source_id,
    )
    query = select(MemoryLinkRow).where(
        MemoryLinkRow.tenant_id == current_tenant_id(session),
        or_(MemoryLinkRow.source_id == memory_id, MemoryLinkRow.target_id == memory_id),
    )
    if after is not None:
        query = query.where(tuple_(*order) > after)
    return (await session.scalars(query.order_by(*order).limit(limit + 1))).all()


class NewLink(NamedTuple):
    """A link from a memory to another memory or to a trace."""

    source: UUID
    relation: str
    kind: Literal["memory", "trace"]
    target: UUID


async def add_links(session: AsyncSession, links: Iterable[NewLink]) -> int:
    """Adds links in one statement and ignores existing ones. Returns the number of new links."""
    rows = list(dict.fromkeys(links))
    if not rows:
        return 0
    sources, relations, kinds, targets = zip(*rows, strict=True)
    added = await fetch_rows(
        session,
        ADD_LINKS,
        {
            "tenants": [current_tenant_id(session)] * len(rows),
            "sources": sources,
            "relations": relations,
            "kinds": kinds,
            "targets": targets,
        },
    )
    return len(added)


ScopedFingerprint = tuple[int, bytes]
"""(scope ID, fingerprint of a content)."""


async def find_same_text(
    session: AsyncSession, contents: Collection[ScopedFingerprint]
) -> dict[ScopedFingerprint, UUID]:
    """The oldest memory of each scope with the same fingerprint, for the contents that have one."""
    if not contents:
        return {}
    scopes, fingerprints = zip(*contents, strict=True)
    parameters = {"scopes": scopes, "fingerprints": fingerprints}
    rows = await fetch_rows(session, FIND_SAME_TEXT, parameters)
    return {(scope, bytes(fingerprint)): memory_id for scope, fingerprint, memory_id in rows}


async def list_linked_traces(
    session: AsyncSession, memory_id: UUID, relation: str
) -> Sequence[UUID]:
    """The last 8 traces that are linked from a memory."""
    rows = await session.scalars(
        select(MemoryLinkRow.target_id)
        .where(
            MemoryLinkRow.tenant_id == current_tenant_id(session),
            MemoryLinkRow.source_id == memory_id,
            MemoryLinkRow.relation == relation,
            MemoryLinkRow.target_kind == "trace",
        )
        .order_by(MemoryLinkRow.created_at.desc())
        .limit(8)
    )
    return rows.all()


async def find_memory_id(session: AsyncSession, address: ScopeAddress, key: str) -> UUID | None:
    """The ID of the memory of a scope with this key, deleted or not."""
    scope = (await find_scopes(session, [address])).get(address)
    if scope is None:
        return None
    return await fetch_value(session, _ID_BY_KEY, {"scope": scope, "key": key})


async def lock_memories(session: AsyncSession, memory_ids: Collection[UUID]) -> None:
    """Locks these memories for an update, in the order of their IDs."""
    if memory_ids:
        await fetch_rows(session, LOCK_MEMORIES, {"ids": list(memory_ids)})


async def add_observation(session: AsyncSession, memory_ids: Collection[UUID]) -> None:
    """Counts one more observation of each of these memories."""
    if memory_ids:
        await fetch_rows(session, ADD_OBSERVATION, {"ids": list(memory_ids)})


async def count_indexed(session: AsyncSession) -> dict[int, int]:
    """Scope ID → number of indexed memories."""
    rows = await session.execute(
        select(ScopeStatRow.scope_id, func.sum(ScopeStatRow.delta))
        .where(ScopeStatRow.tenant_id == current_tenant_id(session))
        .group_by(ScopeStatRow.scope_id)
    )
    return {scope: int(size) for scope, size in rows}


async def list_indexed_models(
    session: AsyncSession, scopes: Sequence[int]
) -> dict[tuple[int, int], int]:
    """(scope ID, label ID of the model) → dimensions, for all vectors of these scopes."""
    tenant = current_tenant_id(session)
    dimensions_by_model: dict[tuple[int, int], int] = {}
    for scope in scopes:
        rows = await session.execute(
            select(
                MemoryVectorRow.model_label_id,
                func.max(func.vector_dims(MemoryVectorRow.embedding)),
            )
            .where(MemoryVectorRow.tenant_id == tenant, MemoryVectorRow.scope_id == scope)
            .group_by(MemoryVectorRow.model_label_id)
        )
        dimensions_by_model |= {(scope, model): dimensions for model, dimensions in rows}
    return dimensions_by_model


async def confirm_memories(
    session: AsyncSession, memory_ids: Collection[UUID], trace_id: UUID
) -> None:
    """Count an observation of each memory, and link it to the trace that confirms it."""
    if not memory_ids:
        return
    confirmed = set(memory_ids)
    await add_observation(session, confirmed)
    await add_links(
        session, (NewLink(memory_id, "derived_from", "trace", trace_id) for memory_id in confirmed)
    )


@dataclass(frozen=True)
class RelatedHit:
    """A memory that is related to results. `via` are entities (`tool:refund`) or `cluster`."""

    memory: MemoryRow
    weight: float
    related_to: Sequence[UUID]
    via: Sequence[str]


async def find_related(
    session: AsyncSession, project_id: str, memory_ids: Sequence[UUID], limit: int
) -> list[RelatedHit]:
    """The memories of the project that are related to the best of these results, best first."""
    if not memory_ids or not limit:
        return []
    parameters = {
        "project": project_id,
        "ids": list(memory_ids[:MAX_SEEDS]),
        "limit": limit + len(memory_ids),
    }
    rows = await fetch_rows(session, RELATED_MEMORIES, parameters)
    rows = [row for row in rows if row.memory_id not in memory_ids][:limit]
    memories = await get_memories(session, [row.memory_id for row in rows])
    return [
        RelatedHit(memories[row.memory_id], float(row.weight), row.of_ids, row.via)
        for row in rows
        if row.memory_id in memories
    ]
