"""Finding memories: a query is tokenised and embedded, then one statement searches the scopes it
names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import UUID as PgUUID
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import HalfVec, tenant_of
from apps.memory_api.core.sql import load
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.schemas import Kind, Status
from apps.memory_api.memory.scopes import KIND_NUMBER, Address, find_labels, find_scopes
from apps.memory_api.memory.tables import Memory
from apps.memory_api.text.tokens import query_terms

ALPHA = {"anchored": 0.4, "minmax": 0.5, "rrf": 0.5}
"""The weight of the vector score when the caller gives none (RETRIEVAL.md section 6)."""

HYBRID = load(__file__, "hybrid.sql").bindparams(
    bindparam("query", type_=HalfVec()), bindparam("tenant", type_=PgUUID(as_uuid=True))
)


@dataclass(frozen=True)
class Filters:
    """What a result must be. Lists mean any of; `min_*` are inclusive; empty means no filter."""

    kinds: Sequence[Kind] = ()
    sections: Sequence[str] = ()
    tags: Sequence[str] = ()
    error_categories: Sequence[str] = ()
    min_confidence: float = 0.0
    min_importance: float = 0.0
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Question:
    """A query as search takes it: unit vector of shape (dimensions,), term ids with their
    query-side weight.
    """

    model: str
    vector: NDArray[np.float32]
    terms: dict[int, float]

    @property
    def is_empty(self) -> bool:
        return not self.terms and not self.vector.any()


@dataclass(frozen=True)
class Hit:
    """A memory found. `vector_score` and `bm25_score` are the normalised scores of the sum; the
    rest explains them.
    """

    memory: Memory
    vector_score: float
    bm25_score: float
    combined_score: float
    cosine: float | None = None
    bm25: float | None = None
    dense_rank: int | None = None
    lexical_rank: int | None = None


async def ask(embedder: Embedder, query_text: str) -> Question:
    """Tokenise and embed a query. No transaction may be open."""
    return Question(embedder.model, await embedder.embed_query(query_text), query_terms(query_text))


async def search(
    session: AsyncSession,
    question: Question,
    addresses: Sequence[Address],
    *,
    top_k: int = 10,
    filters: Filters | None = None,
    fusion: str = "anchored",
    alpha: float | None = None,
) -> list[Hit]:
    """The best `top_k` of the scopes. A query with nothing to look for lists by usefulness, then
    importance.
    """
    filters = filters or Filters()
    scopes = list((await find_scopes(session, addresses)).values())
    if not scopes:
        return []
    if question.is_empty:
        return await _by_usefulness(session, scopes, top_k, filters)
    labels = await _labels(session, question.model, filters)
    if labels is None:
        return []
    rows = (
        await session.execute(
            HYBRID,
            {
                "tenant": tenant_of(session),
                "scopes": scopes,
                "query": HalfVector(question.vector),
                "terms": list(question.terms),
                "frequencies": list(question.terms.values()),
                "candidates": max(100, 2 * top_k),
                "top_k": top_k,
                "fusion": fusion,
                "alpha": _alpha(question, fusion, alpha),
                **labels,
                **_ranges(filters),
            },
        )
    ).all()
    memories = await _load(session, [row.id for row in rows])
    return [
        Hit(
            memory=memories[row.id],
            vector_score=row.vector_score,
            bm25_score=row.bm25_score,
            combined_score=row.combined_score,
            cosine=row.vs,
            bm25=row.ls,
            dense_rank=row.dense_rank,
            lexical_rank=row.lexical_rank,
        )
        for row in rows
    ]


def _alpha(question: Question, fusion: str, alpha: float | None) -> float:
    """A leg that cannot say anything about this query has no weight."""
    if not question.terms:
        return 1.0
    if not question.vector.any():
        return 0.0
    return ALPHA[fusion] if alpha is None else alpha


def _ranges(filters: Filters) -> dict[str, object]:
    return {
        "kinds": [KIND_NUMBER[kind] for kind in filters.kinds] or None,
        "min_confidence": filters.min_confidence,
        "min_importance": filters.min_importance,
        "since": filters.since,
        "until": filters.until,
        "filtered": filters != Filters(),
    }


async def _labels(
    session: AsyncSession, model: str, filters: Filters
) -> dict[str, int | list[int] | None] | None:
    """Label numbers for the statement; None when nothing can match because nobody ever used such a
    name.
    """
    asked = {
        "tags": [("tag", name) for name in filters.tags],
        "sections": [("section", name) for name in filters.sections],
        "errors": [("error", name) for name in filters.error_categories],
    }
    named = [name for names in asked.values() for name in names]
    known = await find_labels(session, [("model", model), *named])
    if ("model", model) not in known:
        return None
    found: dict[str, int | list[int] | None] = {"model": known["model", model]}
    for parameter, names in asked.items():
        numbers = [known[name] for name in names if name in known]
        if names and not numbers:
            return None
        found[parameter] = numbers or None
    return found


async def _load(session: AsyncSession, ids: Sequence[UUID]) -> dict[UUID, Memory]:
    rows = await session.scalars(
        select(Memory).where(Memory.tenant_id == tenant_of(session), Memory.id.in_(ids))
    )
    return {memory.id: memory for memory in rows}


async def _by_usefulness(
    session: AsyncSession, scopes: Sequence[int], top_k: int, filters: Filters
) -> list[Hit]:
    query = select(Memory).where(
        Memory.tenant_id == tenant_of(session),
        Memory.scope.in_(scopes),
        Memory.status == Status.ACTIVE,
        Memory.confidence_score >= filters.min_confidence,
        Memory.importance >= filters.min_importance,
    )
    if filters.kinds:
        query = query.where(Memory.kind.in_([kind.value for kind in filters.kinds]))
    if filters.sections:
        query = query.where(Memory.section.in_(filters.sections))
    if filters.error_categories:
        query = query.where(Memory.error_category.in_(filters.error_categories))
    if filters.tags:
        query = query.where(Memory.tags.overlap(list(filters.tags)))
    if filters.since:
        query = query.where(Memory.created_at >= filters.since)
    if filters.until:
        query = query.where(Memory.created_at <= filters.until)
    order = (Memory.usefulness.desc(), Memory.importance.desc(), Memory.n.desc())
    rows = await session.scalars(query.order_by(*order).limit(top_k))
    return [Hit(memory, 0.0, 0.0, 0.0) for memory in rows]
