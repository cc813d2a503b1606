"""Writing memories, and keeping what is served in step with them in the same transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from pgvector import HalfVector
from sqlalchemy import delete, insert, text
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import tenant_of
from apps.memory_api.core.ids import new_id
from apps.memory_api.memory.prepare import Prepared
from apps.memory_api.memory.schemas import LAYER_OF, Kind, Status
from apps.memory_api.memory.scopes import KIND_NUMBER, ensure_labels, ensure_scopes
from apps.memory_api.memory.tables import Memory, MemoryVector, Posting, ScopeStat
from apps.memory_api.text.tokens import TOKENIZER

POSTINGS = text(
    "insert into postings (tenant_id, scope, term, n, weight) "
    "select * from unnest(cast(:tenants as uuid[]), cast(:scopes as int[]), cast(:terms as int[]), "
    "cast(:ns as bigint[]), cast(:weights as real[])) returning 1"
)


async def put(session: AsyncSession, items: Sequence[Prepared]) -> list[Memory]:
    """Write memories and serve the active ones. Ids are the drafts' own, so links can be made
    before.
    """
    if not items:
        return []
    scopes = await ensure_scopes(session, (item.draft.scope_address for item in items))
    memories = [_row(session, item, scopes[item.draft.scope_address]) for item in items]
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
            "model": {item.model for _, item in pairs},
            "tag": {tag for memory, _ in pairs for tag in memory.tags},
            "section": {memory.section for memory, _ in pairs if memory.section},
            "error": {memory.error_category for memory, _ in pairs if memory.error_category},
        },
    )
    tenant = tenant_of(session)
    await session.execute(
        insert(MemoryVector),
        [
            {
                "tenant_id": tenant,
                "scope": memory.scope,
                "model": labels["model"][item.model],
                "n": memory.n,
                "kind": KIND_NUMBER[Kind(memory.kind)],
                "section": labels["section"].get(memory.section or ""),
                "error_category": labels["error"].get(memory.error_category or ""),
                "confidence": memory.confidence_score,
                "importance": memory.importance,
                "created_at": memory.created_at,
                "tag_ids": sorted(labels["tag"][tag] for tag in set(memory.tags)),
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
    for memory in memories:
        gone = await session.execute(
            delete(MemoryVector)
            .where(
                MemoryVector.tenant_id == tenant,
                MemoryVector.scope == memory.scope,
                MemoryVector.n == memory.n,
            )
            .returning(MemoryVector.n)
        )
        if not gone.first():
            continue
        await session.execute(
            delete(Posting).where(
                Posting.tenant_id == tenant,
                Posting.scope == memory.scope,
                Posting.term.in_(memory.terms),
                Posting.n == memory.n,
            )
        )
        await _count(session, [memory.scope], -1)


async def _count(session: AsyncSession, scopes: Sequence[int], sign: int) -> None:
    """Append to the scopes' statistics; a job folds the deltas, so inserts never wait for each
    other.
    """
    await session.execute(
        insert(ScopeStat),
        [
            {
                "tenant_id": tenant_of(session),
                "scope": scope,
                "id": new_id(),
                "delta": sign * scopes.count(scope),
            }
            for scope in sorted(set(scopes))
        ],
    )


async def fold_statistics(session: AsyncSession) -> None:
    """Make one delta of the many of each scope. Rows added meanwhile are not seen and stay."""
    tenant = tenant_of(session)
    gone = await session.execute(
        delete(ScopeStat)
        .where(ScopeStat.tenant_id == tenant)
        .returning(ScopeStat.scope, ScopeStat.delta)
    )
    sums: Counter[int] = Counter()
    for scope, delta in gone:
        sums[scope] += delta
    if sums:
        await session.execute(
            insert(ScopeStat),
            [
                {"tenant_id": tenant, "scope": scope, "id": new_id(), "delta": total}
                for scope, total in sums.items()
            ],
        )


def _row(session: AsyncSession, item: Prepared, scope: int) -> Memory:
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
