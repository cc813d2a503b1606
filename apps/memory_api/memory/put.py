"""Writing memories, and keeping what is served in step with them in the same transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar
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
from apps.memory_api.memory.scopes import KIND_NUMBER, Name, ensure_labels, ensure_scopes
from apps.memory_api.memory.tables import Label, Memory, MemoryVector, ScopeStat
from apps.memory_api.text.tokens import TOKENIZER

PUT = load(__file__, "put.sql")
VECTORS = load(__file__, "vectors.sql")
POSTINGS = load(__file__, "postings.sql")
WITHDRAW = load(__file__, "withdraw.sql")
DELTAS = insert(ScopeStat.__table__)  # pyright: ignore[reportArgumentType] - a Table
BATCH = 1_000
"""Memories of one statement: an import of any size sends pieces the server can hold."""

Columns = dict[str, Any]
"""The columns of one new memory, as JSON can say them; what is left out has its default."""
T = TypeVar("T")


class Labelled(Protocol):
    """What has labels: a draft, or a memory."""

    @property
    def section(self) -> Any: ...
    @property
    def tags(self) -> Any: ...
    @property
    def error_category(self) -> Any: ...


class Servable(Labelled, Protocol):
    """What of a memory is served: a `Memory`, or one just `Stored`."""

    n: Any
    scope: Any
    kind: Any
    status: Any
    importance: Any
    confidence_score: Any
    created_at: Any


@dataclass(slots=True)
class Stored:
    """A memory just written."""

    id: UUID
    n: int
    scope: int
    kind: str
    section: str | None
    status: str
    tags: Sequence[str]
    error_category: str | None
    importance: float
    confidence_score: float
    created_at: datetime


Served = tuple[Servable, Prepared]
"""A memory, and what search is given of it."""


async def put(session: AsyncSession, items: Sequence[Prepared]) -> list[Stored]:
    """Write memories and serve the active ones. Ids are the drafts' own, so links can be made
    before.
    """
    scopes = await ensure_scopes(session, {item.draft.scope_address for item in items})
    rows = [columns_of(session, item, scopes[item.draft.scope_address]) for item in items]
    stored = await store(session, rows)
    await serve(session, stored, items)
    return stored


async def make_room(session: AsyncSession, items: Sequence[Prepared]) -> None:
    """Make the scopes and labels of what is to be put. Locks are taken in one order: a playbook's
    row, its bullets, scopes and labels, a project's lessons. So this comes after the first two and
    before the last.
    """
    await ensure_scopes(session, {item.draft.scope_address for item in items})
    names = (_names_of(item.draft, item) for item in items)
    await ensure_labels(session, set[Name]().union(*names))


async def store(session: AsyncSession, rows: Sequence[Columns]) -> list[Stored]:
    """Write memories, answered in this order, and serve none of them yet."""
    stored: list[Stored] = []
    for batch in _batches(rows):
        text = json.dumps(batch, ensure_ascii=False)
        made = {str(row.id): row for row in await session.execute(PUT, {"rows": text})}
        stored += [_stored(row, made[row["id"]]) for row in batch]
    return stored


def _stored(row: Columns, made: Any) -> Stored:
    return Stored(
        id=made.id,
        n=made.n,
        scope=row["scope"],
        kind=row["kind"],
        section=row["section"],
        status=row["status"],
        tags=row["tags"],
        error_category=row["error_category"],
        importance=row["importance"],
        confidence_score=made.confidence_score,
        created_at=made.created_at,
    )


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + BATCH] for start in range(0, len(items), BATCH))


async def serve(
    session: AsyncSession, memories: Sequence[Servable], items: Sequence[Prepared]
) -> None:
    """Make active memories findable. `items` says with what; it is parallel to `memories`."""
    pairs = [(m, i) for m, i in zip(memories, items, strict=True) if m.status == Status.ACTIVE]
    if not pairs:
        return
    names = (_names_of(memory, item) for memory, item in pairs)
    labels = await ensure_labels(session, set[Name]().union(*names))
    for batch in _batches(pairs):
        await _embed(session, batch, labels)
        await _post(session, batch)
    await _count(session, [memory.scope for memory, _ in pairs], +1)


def _names_of(memory: Labelled, item: Prepared) -> set[Name]:
    """The labels that it is served under."""
    names: set[Name] = {("model", model) for model in item.vectors}
    names |= {("tag", tag) for tag in memory.tags}
    if memory.section:
        names.add(("section", memory.section))
    if memory.error_category:
        names.add(("error", memory.error_category))
    return names


async def _embed(
    session: AsyncSession, pairs: Sequence[Served], labels: Mapping[Name, int]
) -> None:
    def tag_ids(memory: Servable) -> str:
        return f"{{{','.join(str(n) for n in sorted(labels['tag', t] for t in set(memory.tags)))}}}"

    # one row a model: while its tenant moves from one to another, a memory has vectors of both
    rows = [(m, model, emb) for m, item in pairs for model, emb in item.vectors.items()]
    await session.execute(
        VECTORS,
        {
            "tenant": tenant_of(session),
            "many": len(rows),
            "scopes": [m.scope for m, *_ in rows],
            "models": [labels["model", model] for _, model, _ in rows],
            "ns": [m.n for m, *_ in rows],
            "kinds": [KIND_NUMBER[Kind(m.kind)] for m, *_ in rows],
            "sections": [labels.get(("section", m.section or "")) for m, *_ in rows],
            "errors": [labels.get(("error", m.error_category or "")) for m, *_ in rows],
            "confidences": [m.confidence_score for m, *_ in rows],
            "importances": [m.importance for m, *_ in rows],
            "times": [m.created_at for m, *_ in rows],
            "tags": [tag_ids(m) for m, *_ in rows],
            "embs": [HalfVector(emb) for *_, emb in rows],
        },
    )


async def _post(session: AsyncSession, pairs: Sequence[Served]) -> None:
    rows = [(m.scope, term, m.n, w) for m, item in pairs for term, w in item.weights.items()]
    if rows:
        scopes, terms, ns, weights = zip(*rows, strict=True)
        await session.execute(
            POSTINGS,
            {
                "tenant": tenant_of(session),
                "many": len(rows),
                "scopes": scopes,
                "terms": terms,
                "ns": ns,
                "weights": weights,
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


def columns_of(session: AsyncSession, item: Prepared, scope: int) -> Columns:
    """The row of a draft, not yet written."""
    draft = item.draft
    return {
        "tenant_id": str(tenant_of(session)),
        "id": str(draft.id),
        "project_id": draft.project_id,
        "layer": LAYER_OF[draft.kind].value,
        "kind": draft.kind.value,
        "scope": scope,
        "key": draft.key,
        "section": draft.section,
        "title": draft.title,
        "when_to_use": draft.when_to_use,
        "content": draft.content,
        "searchable_text": draft.searchable_text,
        "keywords": list(draft.keywords),
        "tags": list(draft.tags),
        "importance": draft.importance,
        "confidence": draft.confidence,
        "source": draft.source,
        "status": draft.status.value,
        "error_category": draft.error_category,
        "outcome": draft.outcome,
        "session_id": draft.session_id,
        "trace_id": _text(draft.trace_id),
        "source_event_ids": list(draft.source_event_ids),
        "metadata": draft.metadata,
        "terms": sorted(item.weights),
        "tokenizer": TOKENIZER,
        "fingerprint": f"\\x{item.fingerprint.hex()}",
        "change_reason": draft.reason,
        "change_actor": draft.actor,
        "change_run": _text(draft.run_id),
    }


def _text(number: UUID | None) -> str | None:
    return None if number is None else str(number)
