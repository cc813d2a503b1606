"""Inserts memories, and adds active memories to the search index or removes them, in one
transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import UUID

from pgvector import HalfVector
from pydantic_core import to_json
from sqlalchemy import BigInteger, any_, delete, func, literal, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.schemas import fold_tags
from memory_api.core.statements import fetch_rows, fetch_value, load_statement
from memory_api.memories.index.drafts import ADVICE_KINDS, PreparedMemory
from memory_api.memories.index.scopes import (
    KIND_IDS,
    LabelName,
    ensure_labels,
    ensure_scopes,
)
from memory_api.memories.schemas import LAYER_BY_KIND, MemoryKind, MemoryStatus
from memory_api.memories.tables import LabelRow, MemoryRow, MemoryVectorRow, ScopeStatRow
from memory_api.text.terms import TOKENIZER_VERSION

INSERT_MEMORIES = load_statement("memories/index/index.sql", "insert_memories")
INSERT_VECTORS = load_statement("memories/index/index.sql", "insert_vectors")
INSERT_POSTINGS = load_statement("memories/index/index.sql", "insert_postings")
DELETE_POSTINGS = load_statement("memories/index/index.sql", "delete_postings")
DELETE_SCOPE_VECTORS = load_statement("memories/index/index.sql", "delete_scope_vectors")
DELETE_SCOPE_POSTINGS = load_statement("memories/index/index.sql", "delete_scope_postings")
INSERT_STATS = load_statement("memories/index/index.sql", "insert_scope_stats")
BATCH_SIZE = 1_000
"""Maximum number of memories in one statement, which limits the memory that the server needs."""

Columns = dict[str, Any]
"""The columns of one new memory. Missing columns get their default."""
T = TypeVar("T")


class HasLabels(Protocol):
    """A draft or a memory: what labels are derived from."""

    @property
    def section(self) -> Any: ...
    @property
    def tags(self) -> Any: ...
    @property
    def error_category(self) -> Any: ...


class Indexable(HasLabels, Protocol):
    """The columns that the search index needs: a `MemoryRow` or an `InsertedMemory`."""

    seq: Any
    scope_id: Any
    kind: Any
    status: Any
    importance: Any
    confidence_score: Any
    created_at: Any


@dataclass(slots=True)
class InsertedMemory:
    """A memory that was just inserted."""

    id: UUID
    seq: int
    scope_id: int
    kind: str
    section: str | None
    status: str
    tags: Sequence[str]
    error_category: str | None
    importance: float
    confidence_score: float
    created_at: datetime


_GIVEN_COLUMNS = (
    *("scope_id", "kind", "section", "status", "tags", "error_category", "importance"),
)
"""The columns of an `InsertedMemory` that the database does not compute."""
_DRAFT_COLUMNS = (
    *("id", "project_id", "kind", "key", "section", "title", "when_to_use", "content"),
    *("searchable_text", "keywords", "importance", "confidence", "source", "status"),
    *("awaiting_confirmation", "error_category", "outcome", "session_id", "trace_id"),
    *("source_event_ids", "metadata"),
)
"""The columns that a `MemoryDraft` has under the same name."""
IndexedPair = tuple[Indexable, PreparedMemory]
"""A memory, with its terms and vectors."""


async def insert_memories(
    session: AsyncSession, items: Sequence[PreparedMemory]
) -> list[InsertedMemory]:
    """Inserts memories and indexes the active ones. The IDs are those of the drafts. Advice
    must have passed the guard (`reflection/outside_text.py`).
    """
    assert all(item.draft.is_guarded or item.draft.kind not in ADVICE_KINDS for item in items)
    scopes = await ensure_scopes(session, {item.draft.scope_address for item in items})
    rows = [to_columns(session, item, scopes[item.draft.scope_address]) for item in items]
    inserted = await insert_rows(session, rows)
    await index_memories(session, inserted, items)
    return inserted


async def ensure_scopes_and_labels(session: AsyncSession, items: Sequence[PreparedMemory]) -> None:
    """Creates the scopes and labels of memories that will be inserted.

    Locks are always taken in this order: the row of a playbook, its bullets, scopes and labels,
    lessons. Call this function after the first two and before the last.
    """
    await ensure_scopes(session, {item.draft.scope_address for item in items})
    names = (_label_names(item.draft, item) for item in items)
    await ensure_labels(session, set[LabelName]().union(*names))


async def insert_rows(session: AsyncSession, rows: Sequence[Columns]) -> list[InsertedMemory]:
    """Inserts memories without indexing them. Returns them in the given order."""
    inserted: list[InsertedMemory] = []
    for batch in _batches(rows):
        result = await fetch_rows(session, INSERT_MEMORIES, {"rows": to_json(batch).decode()})
        returned = {row.id: row for row in result}
        for row in batch:
            given = {name: row[name] for name in _GIVEN_COLUMNS}
            inserted.append(InsertedMemory(**given, **returned[row["id"]]))
    return inserted


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[start : start + BATCH_SIZE] for start in range(0, len(items), BATCH_SIZE))


async def index_memories(
    session: AsyncSession, memories: Sequence[Indexable], items: Sequence[PreparedMemory]
) -> None:
    """Adds the active memories to the search index. `items` is parallel to `memories`."""
    pairs = [
        (m, i) for m, i in zip(memories, items, strict=True) if m.status == MemoryStatus.ACTIVE
    ]
    if not pairs:
        return
    names = (_label_names(memory, item) for memory, item in pairs)
    labels = await ensure_labels(session, set[LabelName]().union(*names))
    for batch in _batches(pairs):
        await _insert_vectors(session, batch, labels)
        await insert_postings(session, ((memory, item.weights) for memory, item in batch))
    await _add_to_stats(session, [memory.scope_id for memory, _ in pairs], +1)


def _label_names(memory: HasLabels, item: PreparedMemory) -> set[LabelName]:
    """The names of all labels of a memory."""
    names: set[LabelName] = {("model", model) for model in item.vectors}
    names |= {("tag", tag) for tag in memory.tags}
    if memory.section:
        names.add(("section", memory.section))
    if memory.error_category:
        names.add(("error", memory.error_category))
    return names


async def _insert_vectors(
    session: AsyncSession, pairs: Sequence[IndexedPair], labels: Mapping[LabelName, int]
) -> None:
    def tag_label_ids(memory: Indexable) -> str:
        return f"{{{','.join(str(n) for n in sorted(labels['tag', t] for t in set(memory.tags)))}}}"

    # One row per model: while a tenant changes its model, a memory has vectors of both.
    rows = [(m, model, vector) for m, item in pairs for model, vector in item.vectors.items()]
    await fetch_rows(
        session,
        INSERT_VECTORS,
        {
            "many": len(rows),
            "scopes": [m.scope_id for m, *_ in rows],
            "models": [labels["model", model] for _, model, _ in rows],
            "seqs": [m.seq for m, *_ in rows],
            "kinds": [KIND_IDS[MemoryKind(m.kind)] for m, *_ in rows],
            "sections": [labels.get(("section", m.section or "")) for m, *_ in rows],
            "errors": [labels.get(("error", m.error_category or "")) for m, *_ in rows],
            "confidences": [m.confidence_score for m, *_ in rows],
            "importances": [m.importance for m, *_ in rows],
            "times": [m.created_at for m, *_ in rows],
            "tags": [tag_label_ids(m) for m, *_ in rows],
            "embeddings": [HalfVector(vector) for *_, vector in rows],
        },
    )


async def insert_postings(
    session: AsyncSession, memories: Iterable[tuple[Any, Mapping[int, float]]]
) -> None:
    """Inserts the postings of memories: (a row with `scope_id` and `seq`, term ID → weight)."""
    rows = [(m.scope_id, term, m.seq, w) for m, weights in memories for term, w in weights.items()]
    if rows:
        scopes, terms, seqs, values = zip(*rows, strict=True)
        lists = {"scopes": scopes, "terms": terms, "seqs": seqs, "weights": values}
        await fetch_rows(session, INSERT_POSTINGS, {"many": len(rows), **lists})


async def unindex_memories(session: AsyncSession, memories: Sequence[MemoryRow]) -> None:
    """Removes memories from the search index: vectors of all models, postings, scope statistics."""
    tenant = current_tenant_id(session)
    models = select(LabelRow.id).where(LabelRow.tenant_id == tenant, LabelRow.type == "model")
    removed: list[MemoryRow] = []
    for scope in sorted({memory.scope_id for memory in memories}):
        by_seq = {memory.seq: memory for memory in memories if memory.scope_id == scope}
        seqs = await session.scalars(
            delete(MemoryVectorRow)
            .where(
                MemoryVectorRow.tenant_id == tenant,
                MemoryVectorRow.scope_id == scope,
                # all columns of the key, so that the index is used
                MemoryVectorRow.model_label_id.in_(models),
                MemoryVectorRow.seq == any_(literal(list(by_seq), ARRAY(BigInteger))),
            )
            .returning(MemoryVectorRow.seq)
        )
        removed += [by_seq[seq] for seq in set(seqs)]
    if not removed:
        return
    terms = [(memory.scope_id, term, memory.seq) for memory in removed for term in memory.terms]
    if terms:
        await delete_postings(session, terms)
    await _add_to_stats(session, [memory.scope_id for memory in removed], -1)


async def unindex_scope(session: AsyncSession, scope: int) -> None:
    """Removes all memories of a scope from the search index. The caller prevents new ones."""
    count = await fetch_value(session, DELETE_SCOPE_VECTORS, {"scope": scope})
    await fetch_rows(session, DELETE_SCOPE_POSTINGS, {"scope": scope})
    if count:
        await _insert_deltas(session, {scope: -count})


async def delete_postings(session: AsyncSession, postings: Sequence[tuple[int, int, int]]) -> None:
    """Deletes postings (scope ID, term ID, seq)."""
    scopes, terms, seqs = map(list, zip(*postings, strict=True))
    parameters = {"scopes": scopes, "terms": terms, "seqs": seqs}
    await fetch_rows(session, DELETE_POSTINGS, parameters)


async def _add_to_stats(session: AsyncSession, scopes: Sequence[int], sign: int) -> None:
    """Adds one delta per scope. Inserts never wait for each other; `fold_scope_stats` sums the
    deltas.
    """
    await _insert_deltas(session, {scope: sign * n for scope, n in Counter(scopes).items()})


async def _insert_deltas(session: AsyncSession, deltas: Mapping[int, int]) -> None:
    scopes, values = zip(*sorted(deltas.items()), strict=True)
    await fetch_rows(
        session,
        INSERT_STATS,
        {
            "many": len(scopes),
            "scopes": scopes,
            "ids": [new_id() for _ in scopes],
            "deltas": values,
        },
    )


async def fold_scope_stats(session: AsyncSession) -> None:
    """Replaces the deltas of each scope by their sum. Concurrently added rows remain."""
    tenant = current_tenant_id(session)
    scopes = (
        select(ScopeStatRow.scope_id)
        .where(ScopeStatRow.tenant_id == tenant)
        .group_by(ScopeStatRow.scope_id)
        .having(func.count() > 1)
    )
    deleted = await session.execute(
        delete(ScopeStatRow)
        .where(ScopeStatRow.tenant_id == tenant, ScopeStatRow.scope_id.in_(scopes))
        .returning(ScopeStatRow.scope_id, ScopeStatRow.delta)
    )
    sums: Counter[int] = Counter()
    for scope, delta in deleted:
        sums[scope] += delta
    if sums:
        await _insert_deltas(session, sums)


def to_columns(session: AsyncSession, item: PreparedMemory, scope: int) -> Columns:
    """The columns of a memory that is not inserted yet."""
    draft = item.draft
    return {name: getattr(draft, name) for name in _DRAFT_COLUMNS} | {
        "tenant_id": current_tenant_id(session),
        "layer": LAYER_BY_KIND[draft.kind],
        "scope_id": scope,
        "tags": fold_tags(draft.tags),
        "terms": sorted(item.weights),
        "tokenizer": TOKENIZER_VERSION,
        "fingerprint": f"\\x{item.fingerprint.hex()}",
        "change_reason": draft.reason,
        "change_actor": draft.actor,
        "change_run_id": draft.run_id,
    }
