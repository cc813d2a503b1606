"""Writing memories, and keeping what is served in step with them in the same transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from pgvector import HalfVector
from sqlalchemy import BigInteger, any_, delete, func, insert, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.ids import new_id
from apps.memory_api.core.sql import load
from apps.memory_api.memory.prepare import Prepared
from apps.memory_api.memory.schemas import LAYER_OF, Kind, Status
from apps.memory_api.memory.scopes import KIND_NUMBER, ensure_labels, ensure_scopes
from apps.memory_api.memory.tables import Label, Memory, MemoryVector, ScopeStat
from apps.memory_api.text.tokens import TOKENIZER

POSTINGS = load(__file__, "postings.sql")
WITHDRAW = load(__file__, "withdraw.sql")
VECTORS = insert(MemoryVector.__table__)  # pyright: ignore[reportArgumentType] - a Table
DELTAS = insert(ScopeStat.__table__)  # pyright: ignore[reportArgumentType] - a Table
"""Of the table, not the class: one statement for all rows, whichever of their fields are empty."""


async def put(session: AsyncSession, items: Sequence[Prepared]) -> list[Memory]:
    """Write memories and serve the active ones. Ids are the drafts' own, so links can be made
    before.
    """
    if not items:
        return []
    scopes = await ensure_scopes(session, (item.draft.scope_address for item in items))
    memories = [row_of(session, item, scopes[item.draft.scope_address]) for item in items]
    session.add_all(memories)
    await session.flush()
    await serve(session, memories, items)
    return memories


async def serve(
    session: AsyncSession, memories: Sequence[Memory], items: Sequence[Prepared]
) -> None:
    """Make active memories findable. `items` says with what; it is parallel to `memories`."""
    pairs = [(m, i) for m, i in zip(memories, items, strict=True) if m.status == Status.ACTIVE]
    if not pairs:
        return
    labels = await ensure_labels(
        session,
        {
            *(("model", item.model) for _, item in pairs),
            *(("tag", tag) for memory, _ in pairs for tag in memory.tags),
            *(("section", memory.section) for memory, _ in pairs if memory.section),
            *(("error", memory.error_category) for memory, _ in pairs if memory.error_category),
        },
    )
    tenant = tenant_of(session)
    await session.execute(
        VECTORS,
        [
            {
                "tenant_id": tenant,
                "scope": memory.scope,
                "model": labels["model", item.model],
                "n": memory.n,
                "kind": KIND_NUMBER[Kind(memory.kind)],
                "section": labels.get(("section", memory.section or "")),
                "error_category": labels.get(("error", memory.error_category or "")),
                "confidence": memory.confidence_score,
                "importance": memory.importance,
                "created_at": memory.created_at,
                "tag_ids": sorted(labels["tag", tag] for tag in set(memory.tags)),
                "emb": HalfVector(item.vector),
            }
            for memory, item in pairs
        ],
    )
    await _post(session, tenant, pairs)
    await _count(session, [memory.scope for memory, _ in pairs], +1)


async def _post(
    session: AsyncSession, tenant: UUID, pairs: Sequence[tuple[Memory, Prepared]]
) -> None:
    rows = [(m.scope, term, m.n, w) for m, item in pairs for term, w in item.weights.items()]
    if rows:
        scopes, terms, ns, weights = zip(*rows, strict=True)
        await session.execute(
            POSTINGS,
            {
                "tenants": [tenant] * len(rows),
                "scopes": list(scopes),
                "terms": list(terms),
                "ns": list(ns),
                "weights": list(weights),
            },
        )


async def withdraw(session: AsyncSession, memories: Sequence[Memory]) -> None:
    """Take memories out of what is served: vectors of every model, postings, scope count."""
    tenant = tenant_of(session)
    models = select(Label.id).where(Label.tenant_id == tenant, Label.space == "model")
    gone: list[Memory] = []
    for scope in sorted({memory.scope for memory in memories}):
        mine = {memory.n: memory for memory in memories if memory.scope == scope}
        found = await session.scalars(
            delete(MemoryVector)
            .where(
                MemoryVector.tenant_id == tenant,
                MemoryVector.scope == scope,
                MemoryVector.model.in_(models),  # keeps the key's columns together: no scan
                MemoryVector.n == any_(literal(list(mine), ARRAY(BigInteger))),
            )
            .returning(MemoryVector.n)
        )
        gone += [mine[n] for n in set(found)]
    if not gone:
        return
    terms = [(memory.scope, term, memory.n) for memory in gone for term in memory.terms]
    if terms:
        scopes, numbers, ns = map(list, zip(*terms, strict=True))
        given = {"scopes": scopes, "terms": numbers, "ns": ns}
        await session.execute(WITHDRAW, {"tenant": tenant, **given})
    await _count(session, [memory.scope for memory in gone], -1)


async def _count(session: AsyncSession, scopes: Sequence[int], sign: int) -> None:
    """Append to the scopes' statistics; a job folds the deltas, so inserts never wait for each
    other.
    """
    await _append(session, {scope: sign * many for scope, many in Counter(scopes).items()})


async def _append(session: AsyncSession, deltas: Mapping[int, int]) -> None:
    await session.execute(
        DELTAS,
        [
            {"tenant_id": tenant_of(session), "scope": scope, "id": new_id(), "delta": delta}
            for scope, delta in sorted(deltas.items())
        ],
    )


async def fold_statistics(session: AsyncSession) -> None:
    """Make one delta of the many of each scope. Rows added meanwhile are not seen and stay."""
    tenant = tenant_of(session)
    many = (
        select(ScopeStat.scope)
        .where(ScopeStat.tenant_id == tenant)
        .group_by(ScopeStat.scope)
        .having(func.count() > 1)
    )
    gone = await session.execute(
        delete(ScopeStat)
        .where(ScopeStat.tenant_id == tenant, ScopeStat.scope.in_(many))
        .returning(ScopeStat.scope, ScopeStat.delta)
    )
    sums: Counter[int] = Counter()
    for scope, delta in gone:
        sums[scope] += delta
    if sums:
        await _append(session, sums)


def row_of(session: AsyncSession, item: Prepared, scope: int) -> Memory:
    """The row of a draft, not yet written."""
    draft = item.draft
    return Memory(
        tenant_id=tenant_of(session),
        id=draft.id,
        project_id=draft.project_id,
        layer=LAYER_OF[draft.kind].value,
        kind=draft.kind.value,
        scope=scope,
        key=draft.key,
        section=draft.section,
        title=draft.title,
        when_to_use=draft.when_to_use,
        content=draft.content,
        searchable_text=draft.searchable_text,
        keywords=list(draft.keywords),
        tags=list(draft.tags),
        importance=draft.importance,
        confidence=draft.confidence,
        source=draft.source,
        status=draft.status.value,
        error_category=draft.error_category,
        outcome=draft.outcome,
        session_id=draft.session_id,
        trace_id=draft.trace_id,
        source_event_ids=list(draft.source_event_ids),
        metadata_=draft.metadata,
        terms=sorted(item.weights),
        tokenizer=TOKENIZER,
        fingerprint=item.fingerprint,
        change_reason=draft.reason,
        change_actor=draft.actor,
        change_run=draft.run_id,
    )
