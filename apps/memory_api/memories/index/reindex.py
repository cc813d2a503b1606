"""Replaces the terms of memories after a change of the tokenizer, and adds vectors of another
model, batch by batch, while memories are searched and changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.statements import fetch_column, fetch_rows, load_statement
from memory_api.memories.index.scopes import ensure_labels
from memory_api.memories.index.writer import delete_postings, insert_postings
from memory_api.memories.schemas import MemoryStatus

LIST_TOKENIZERS = load_statement("memories/index/index.sql", "list_tokenizers")
FIND_INDEXED = load_statement("memories/index/index.sql", "find_indexed")
LOCK_INDEXED = load_statement("memories/index/index.sql", "lock_indexed")
SET_TERMS = load_statement("memories/index/index.sql", "set_terms")


class IndexedMemory(NamedTuple):
    """A memory and its indexed text. `text_hash` is the MD5 of the text."""

    id: UUID
    seq: int
    text: str
    text_hash: str


async def find_tokenizers(session: AsyncSession) -> Sequence[str]:
    """The tokenizers of a tenant's memories, active or not."""
    return await fetch_column(session, LIST_TOKENIZERS, {})


async def find_indexed(
    session: AsyncSession, tokenizer: str, limit: int
) -> Sequence[IndexedMemory]:
    """Any memories with the terms of this tokenizer."""
    parameters = {"tokenizer": tokenizer, "limit": limit}
    return [IndexedMemory(*row) for row in await fetch_rows(session, FIND_INDEXED, parameters)]


async def replace_terms(
    session: AsyncSession,
    old_tokenizer: str,
    new_tokenizer: str,
    rows: Sequence[IndexedMemory],
    weights: Mapping[int, Mapping[int, float]],
) -> int:
    """Replaces the terms of memories. `weights` maps the `seq` of a memory to its terms and their
    weights. Skips memories that have changed since they were read. Returns the number of updated
    ones.
    """
    texts = {"ids": [row.id for row in rows], "text_hashes": [row.text_hash for row in rows]}
    locked = await fetch_rows(session, LOCK_INDEXED, {"tokenizer": old_tokenizer, **texts})
    if not locked:
        return 0
    active = [row for row in locked if row.status == MemoryStatus.ACTIVE]
    old_postings = [(row.scope_id, term, row.seq) for row in active for term in row.terms]
    if old_postings:
        await delete_postings(session, old_postings)
    await insert_postings(session, [(row, weights[row.seq]) for row in active])
    terms = [",".join(map(str, sorted(weights[row.seq]))) for row in locked]
    lists = {"seqs": [row.seq for row in locked], "terms": terms}
    await fetch_rows(session, SET_TERMS, {"tokenizer": new_tokenizer, **lists})
    return len(locked)


FIND_MISSING_VECTORS = load_statement("memories/index/index.sql", "find_missing_vectors")
LOCK_MEMORIES = load_statement("memories/index/index.sql", "lock_memories")
STORE_VECTORS = load_statement("memories/index/index.sql", "store_vectors")
DELETE_VECTORS = load_statement("memories/index/index.sql", "delete_vectors")
FIND_UNUSED_MODELS = load_statement("memories/index/index.sql", "find_unused_models")
COUNT_VECTORS = load_statement("memories/index/index.sql", "count_vectors")


class MissingVector(NamedTuple):
    """A memory without a vector of the target model. `text_hash` is the MD5 of its text."""

    seq: int
    id: UUID
    text: str
    text_hash: str


class BackfillRange(NamedTuple):
    """One scope, with the label IDs of the model that has vectors and of the model that
    needs them.
    """

    scope: int
    source: int
    target: int


async def model_label_id(session: AsyncSession, label: str) -> int:
    """The ID of a model's label. Creates a missing label."""
    return (await ensure_labels(session, [("model", label)]))["model", label]


async def count_vectors(session: AsyncSession, model: int) -> dict[int, int]:
    """Scope ID → number of vectors of this model."""
    rows = await fetch_rows(session, COUNT_VECTORS, {"model": model})
    return {row.scope_id: row.vector_count for row in rows}


async def find_missing_vectors(
    session: AsyncSession, backfill: BackfillRange, after: int, limit: int
) -> Sequence[MissingVector]:
    """The next memories, by `seq` above `after`, without a vector of the target model."""
    parameters = {**backfill._asdict(), "after": after, "limit": limit}
    rows = await fetch_rows(session, FIND_MISSING_VECTORS, parameters)
    return [MissingVector(*row) for row in rows]


async def store_vectors(
    session: AsyncSession,
    backfill: BackfillRange,
    rows: Sequence[MissingVector],
    vectors: NDArray[np.float32],
) -> int:
    """Stores vectors of shape (len(rows), dimensions). Skips memories whose text has changed.
    Returns the number of new vectors.
    """
    await fetch_rows(session, LOCK_MEMORIES, {"ids": [row.id for row in rows]})
    stored = await fetch_rows(
        session,
        STORE_VECTORS,
        {
            **backfill._asdict(),
            "seqs": [row.seq for row in rows],
            "text_hashes": [row.text_hash for row in rows],
            "embeddings": [HalfVector(vector) for vector in vectors],
        },
    )
    return len(stored)


async def find_unused_models(session: AsyncSession, grace: timedelta) -> dict[int, str]:
    """Label ID → label of the models whose vectors can be deleted. `grace` is how long search may
    still use a model after it was active.
    """
    rows = await fetch_rows(session, FIND_UNUSED_MODELS, {"grace": grace})
    return {row.id: row.name for row in rows}


async def delete_vectors(
    session: AsyncSession, backfill: BackfillRange, after: int, limit: int
) -> Sequence[int]:
    """Deletes vectors of the source model, by `seq` above `after`, of memories with a vector of the
    target model. Returns the `seq` of the memories.
    """
    parameters = {
        "scope": backfill.scope,
        "model": backfill.source,
        "remaining_model": backfill.target,
        "after": after,
        "limit": limit,
    }
    return await fetch_column(session, DELETE_VECTORS, parameters)
