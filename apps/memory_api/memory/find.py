"""Finding memories: a query is tokenised and embedded, then one call of `hansei_search` finds them.

The call binds the tenant, resolves scopes and labels, searches and brings the rows: one round trip
(docs/decisions/search.md). No ORM object is made on this path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypedDict, Unpack
from uuid import UUID

import asyncpg
import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import Sessions, raw_connection, tenant_of
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.memory.scopes import KIND_NUMBER, Address, Area
from apps.memory_api.text.tokens import query_terms

ALPHA = {"anchored": 0.4, "minmax": 0.5, "rrf": 0.5}
"""The weight of the vector score when nobody gives one (RETRIEVAL.md section 6)."""

RankBy = Literal["score", "usefulness"]
CALL = "select * from hansei_search({})".format(", ".join(f"${n}" for n in range(1, 23)))


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


class How(TypedDict, total=False):
    """How to search; what is left out has the default."""

    top_k: int
    """10; as large as the scopes brings all of them."""
    filters: Filters | None
    fusion: str
    """`anchored` (default), `minmax` or `rrf`."""
    alpha: float | None
    """The weight of the vector score; None for the fusion's own."""
    explain: bool
    """With the ranks in both legs."""
    rank_by: RankBy
    """`usefulness` orders by combined_score × (0.5 + usefulness), among the best 4 × top_k."""


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


@dataclass(slots=True)
class FoundMemory:
    """A row of `memories` as search brings it: the columns of `hybrid.sql`, in their order."""

    id: UUID
    n: int
    scope: int
    project_id: str
    layer: str
    kind: str
    key: str | None
    section: str | None
    title: str | None
    when_to_use: str | None
    content: str
    searchable_text: str
    keywords: list[str]
    tags: list[str]
    importance: float
    strength: float
    confidence: float | None
    confidence_score: float
    usefulness: float
    helpful: int
    harmful: int
    neutral: int
    witnesses: int
    status: str
    pinned: bool
    source: str
    error_category: str | None
    outcome: str | None
    session_id: str | None
    trace_id: UUID | None
    source_event_ids: list[str]
    metadata_: dict[str, Any]
    terms: list[int]
    revision: int
    version: int | None
    place: int | None
    created_at: datetime
    updated_at: datetime

    def __post_init__(self) -> None:
        if isinstance(self.metadata_, str):  # as the driver hands over jsonb
            self.metadata_ = json.loads(self.metadata_)


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory found. `vector_score` and `bm25_score` are the normalised scores of the sum; the
    rest explains them. Ranks are there when asked for (`explain`) and with `rrf`.
    """

    memory: FoundMemory
    vector_score: float
    bm25_score: float
    combined_score: float
    cosine: float | None = None
    bm25: float | None = None
    dense_rank: int | None = None
    lexical_rank: int | None = None
    playbook: str | None = None
    """The playbook it stands in; None outside of one."""
    playbook_version: int | None = None
    """As that playbook was when this was found."""


SCORES = len(fields(Hit)) - 1
"""The columns before the memory's own."""


def weight(settings: Settings, fusion: str, alpha: float | None) -> float | None:
    """The weight that a request asks for, or the operator for spec 2's formula."""
    return settings.search_alpha if alpha is None and fusion == "minmax" else alpha


async def ask(embedder: Embedder, query_text: str) -> Question:
    """Tokenise and embed a query. No transaction may be open."""
    return Question(embedder.model, await embedder.embed_query(query_text), query_terms(query_text))


async def search(
    session: AsyncSession,
    question: Question,
    addresses: Sequence[Address | Area],
    **how: Unpack[How],
) -> list[Hit]:
    """The best of the scopes, in a transaction that is open already. A query with nothing to look
    for lists by usefulness, then importance.
    """
    if not addresses:
        return []
    await session.flush()
    driver = await raw_connection(session)
    rows = await driver.fetch(CALL, tenant_of(session), *call_of(question, addresses, how))
    return [_hit(row) for row in rows]


async def search_once(
    sessions: Sessions,
    tenant_id: UUID,
    question: Question,
    addresses: Sequence[Address | Area],
    **how: Unpack[How],
) -> list[Hit]:
    """As `search`, with no transaction around it: one round trip, tenant binding included."""
    if not addresses:
        return []
    async with sessions.statement() as driver:
        rows = await driver.fetch(CALL, tenant_id, *call_of(question, addresses, how))
    return [_hit(row) for row in rows]


def call_of(question: Question, addresses: Sequence[Address | Area], how: How) -> tuple[Any, ...]:
    """The arguments of `hansei_search` after the tenant."""
    projects, areas, names = zip(*dict.fromkeys(addresses), strict=True)
    filters, fusion = how.get("filters") or Filters(), how.get("fusion", "anchored")
    return (
        projects,
        areas,
        names,
        question.model,
        None if question.is_empty else HalfVector(question.vector),
        list(question.terms),
        list(question.terms.values()),
        [KIND_NUMBER[kind] for kind in filters.kinds] or None,
        [kind.value for kind in filters.kinds] or None,
        list(filters.sections) or None,
        list(filters.error_categories) or None,
        list(filters.tags) or None,
        filters.min_confidence,
        filters.min_importance,
        filters.since,
        filters.until,
        fusion,
        _alpha(question, fusion, how.get("alpha")),
        how.get("top_k", 10),
        how.get("explain", False),
        how.get("rank_by") == "usefulness",
    )


def _alpha(question: Question, fusion: str, alpha: float | None) -> float:
    """A leg that cannot say anything about this query has no weight."""
    if not question.terms:
        return 1.0
    if not question.vector.any():
        return 0.0
    return ALPHA[fusion] if alpha is None else alpha


def _hit(row: asyncpg.Record) -> Hit:
    values = tuple(row)
    return Hit(FoundMemory(*values[SCORES:]), *values[:SCORES])
