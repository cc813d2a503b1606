"""Finding memories: a query is tokenised and embedded, then one call of `hansei_search` finds them.

The call binds the tenant, resolves scopes and labels, searches and brings the rows: one round trip
(docs/decisions/search.md). No ORM object is made on this path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypedDict, Unpack
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import Sessions, raw_connection, tenant_of
from apps.memory_api.core.settings import Settings
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.found import Found, Hit, found_in
from apps.memory_api.memory.schemas import Kind, RankBy, SearchBody, Status
from apps.memory_api.memory.scopes import KIND_NUMBER, Address, Area
from apps.memory_api.text.tokens import query_terms

ALPHA = {"anchored": 0.4, "minmax": 0.5, "rrf": 0.5}
"""The weight of the vector score when nobody gives one (RETRIEVAL.md section 6)."""


class Call(NamedTuple):
    """The arguments of `hansei_search` after the tenant, by their names there."""

    projects: Sequence[str]
    areas: Sequence[str]
    names: Sequence[str | None]
    model: str
    q: HalfVector | None
    terms: Sequence[int]
    frequencies: Sequence[float]
    kinds: Sequence[int] | None
    kind_names: Sequence[str] | None
    sections: Sequence[str] | None
    errors: Sequence[str] | None
    tags: Sequence[str] | None
    status: str
    min_confidence: float
    min_importance: float
    since: datetime | None
    until: datetime | None
    fusion: str
    alpha: float
    top_k: int
    explain: bool
    by_usefulness: bool
    head: bool


CALL = "select * from hansei_search(_t => $1, {})".format(
    ", ".join(f"_{name} => ${n}" for n, name in enumerate(Call._fields, start=2))
)


@dataclass(frozen=True)
class Filters:
    """What a result must be. Lists mean any of; `min_*` are inclusive; empty means no filter.
    Sections in any spelling, or by the slug of a playbook that is searched.
    """

    kinds: Sequence[Kind] = ()
    sections: Sequence[str] = ()
    tags: Sequence[str] = ()
    error_categories: Sequence[str] = ()
    status: Status = Status.ACTIVE
    """What is not active is in no index: it is listed by usefulness (`search_text` ranks it)."""
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
    head: bool
    """With the playbook that is searched: the one address is its."""


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


def how_of(body: SearchBody, settings: Settings) -> How:
    """As a request says. The weight of spec 2's formula is the operator's where it says none."""
    weighed_by_operator = body.alpha is None and body.fusion == "minmax"
    return How(
        top_k=body.top_k,
        filters=Filters(
            kinds=body.kinds,
            sections=body.section_filter or (),
            tags=body.tags,
            error_categories=body.error_categories,
            status=Status(body.status),
            min_confidence=body.min_confidence,
            min_importance=body.min_importance,
            since=body.since,
            until=body.until,
        ),
        fusion=body.fusion,
        alpha=settings.search_alpha if weighed_by_operator else body.alpha,
        explain=body.explain,
        rank_by=body.rank_by,
    )


async def ask(embedder: Embedder, query_text: str) -> Question:
    """Tokenise and embed a query; one that says nothing is not embedded. No transaction may be
    open.
    """
    if not query_text.strip():
        return Question(embedder.model, np.zeros(1, np.float32), {})
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
    return found_in(rows).hits


async def search_once(
    sessions: Sessions,
    tenant_id: UUID,
    question: Question,
    addresses: Sequence[Address | Area],
    **how: Unpack[How],
) -> Found:
    """As `search`, with no transaction around it: one round trip, tenant binding included."""
    if not addresses:
        return Found([])
    async with sessions.statement() as driver:
        rows = await driver.fetch(CALL, tenant_id, *call_of(question, addresses, how))
    return found_in(rows)


def call_of(question: Question, addresses: Sequence[Address | Area], how: How) -> Call:
    """How the database is asked."""
    projects, areas, names = zip(*dict.fromkeys(addresses), strict=True)
    filters, fusion = how.get("filters") or Filters(), how.get("fusion", "anchored")
    listed = question.is_empty or filters.status is not Status.ACTIVE
    return Call(
        projects=projects,
        areas=areas,
        names=names,
        model=question.model,
        q=None if listed else HalfVector(question.vector),
        terms=list(question.terms),
        frequencies=list(question.terms.values()),
        kinds=[KIND_NUMBER[kind] for kind in filters.kinds] or None,
        kind_names=[kind.value for kind in filters.kinds] or None,
        sections=list(filters.sections) or None,
        errors=list(filters.error_categories) or None,
        tags=list(filters.tags) or None,
        status=filters.status.value,
        min_confidence=filters.min_confidence,
        min_importance=filters.min_importance,
        since=filters.since,
        until=filters.until,
        fusion=fusion,
        alpha=alpha_of(question, how),
        top_k=how.get("top_k", 10),
        explain=how.get("explain", False),
        by_usefulness=how.get("rank_by") == "usefulness",
        head=how.get("head", False),
    )


def alpha_of(question: Question, how: How) -> float:
    """The weight of the vector score. A leg that cannot say anything about this query has none."""
    if not question.terms:
        return 1.0
    if not question.vector.any():
        return 0.0
    alpha = how.get("alpha")
    return ALPHA[how.get("fusion", "anchored")] if alpha is None else alpha
