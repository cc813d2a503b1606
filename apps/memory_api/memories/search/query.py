"""Options and filters of a search, the call of the SQL function `hansei_search`, and its result
rows.

The call binds the tenant, resolves scopes and labels, searches and returns the rows in one round
trip (docs/decisions/search.md). It creates no ORM objects.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypedDict
from uuid import UUID

import asyncpg
import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector
from typing_extensions import TypeVar

from memory_api.core.schemas import fold_tags
from memory_api.core.settings import Settings
from memory_api.memories.index.scopes import KIND_IDS, ScopeAddress, ScopeArea
from memory_api.memories.schemas import (
    Match,
    MemoryKind,
    MemoryStatus,
    RankBy,
    ScoreExplanation,
    SearchRequest,
)


@dataclass(slots=True)
class MemoryRecord:
    """A row of `memories` as `hansei_search` returns it. Fields have the names of the columns."""

    id: UUID
    seq: int
    scope_id: int
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
    confidence: float | None
    confidence_score: float
    usefulness: float
    helpful: int
    harmful: int
    neutral: int
    observation_count: int
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
    playbook_version: int | None
    position: int | None
    created_at: datetime
    updated_at: datetime

    @property
    def awaiting_confirmation(self) -> bool:
        """A search finds active memories, and only quarantined ones wait."""
        return False

    def __post_init__(self) -> None:
        self.metadata_ = parse_json_column(self.metadata_)


class FoundMemory(Protocol):
    """What a search itself reads of a memory. Other columns are for its caller."""

    @property
    def seq(self) -> int: ...
    @property
    def scope_id(self) -> int: ...
    @property
    def searchable_text(self) -> str: ...
    @property
    def usefulness(self) -> float: ...


Found = TypeVar("Found", bound=FoundMemory, default=MemoryRecord)


class SearchHit(NamedTuple, Generic[Found]):
    """A memory with its scores. `combined_score` is the weighted sum of the normalized
    `vector_score` and `bm25_score`. `relevance` is that of the default fusion, whatever the fusion
    of the search is. `cosine` and `bm25` are the scores before normalization. Ranks are set with
    `explain` and with `rrf`, and only by the search (vector or BM25) that found the memory.
    """

    memory: Found
    vector_score: float
    bm25_score: float
    combined_score: float
    relevance: float = 0.0
    cosine: float | None = None
    bm25: float | None = None
    dense_rank: int | None = None
    lexical_rank: int | None = None
    playbook: str | None = None
    """The playbook of a bullet; None for other memories."""

    @property
    def match(self) -> Match | None:
        """None if there was no query."""
        if self.cosine is None:
            return None
        return next(name for name, least in MIN_RELEVANCE.items() if self.relevance >= least)

    def explain(self) -> ScoreExplanation:
        sources = {"words": self.lexical_rank, "meaning": self.dense_rank}
        return {
            "cosine": self.cosine,
            "bm25": self.bm25,
            "dense_rank": self.dense_rank,
            "lexical_rank": self.lexical_rank,
            "usefulness": self.memory.usefulness,
            "why": " and ".join(source for source, rank in sources.items() if rank) or "usefulness",
        }


@dataclass(frozen=True, slots=True)
class PlaybookHeader:
    """The playbook at the time of the search."""

    scope_id: int
    version: int
    settings: dict[str, Any]
    """`sections`, `token_budget` and `holdout_share`."""


@dataclass(frozen=True, slots=True)
class SearchResults(Generic[Found]):
    """The hits of a search. `header` is set if it was requested and the playbook exists."""

    hits: list[SearchHit[Found]]
    header: PlaybookHeader | None = None


class SearchColumns(Generic[Found]):
    """The columns of the found memories that a search returns, and the class of their records.

    `expressions` are SQL by field of the class, in their order. A search that needs few columns
    should not read all of them: reading takes longer than a search in a small playbook.
    """

    def __init__(self, record: Callable[..., Found], expressions: Mapping[str, str]) -> None:
        self._record = record
        columns = (*_HEADER_COLUMNS, *_SCORE_COLUMNS, *expressions.values())
        self.call = f"select {', '.join(columns)} from hansei_search({_ARGUMENTS})"

    def parse_rows(self, rows: Sequence[asyncpg.Record]) -> SearchResults[Found]:
        """Parses the rows of `call`. A first row without an ID is the header of the playbook."""
        if not rows or rows[0]["id"] is not None:
            return SearchResults(self._hits(rows))
        _, scope, version, settings = rows[0][: len(_HEADER_COLUMNS)]
        header = PlaybookHeader(scope, version, parse_json_column(settings))
        return SearchResults(self._hits(rows[1:]), header)

    def _hits(self, rows: Iterable[asyncpg.Record]) -> list[SearchHit[Found]]:
        scores = slice(len(_HEADER_COLUMNS), len(_HEADER_COLUMNS) + len(_SCORE_COLUMNS))
        memory = slice(scores.stop, None)
        return [SearchHit(self._record(*row[memory]), *row[scores]) for row in rows]


def parse_json_column(jsonb: Any) -> dict[str, Any]:
    """The driver returns JSON columns as text unless a codec is set."""
    return json.loads(jsonb) if isinstance(jsonb, str) else jsonb


_HEADER_COLUMNS = (
    *("id", "scope_id", "playbook_version"),
    "case when id is null then metadata end",
)
_SCORE_COLUMNS = SearchHit._fields[1:]
MIN_RELEVANCE: dict[Match, float] = {"strong": 0.45, "weak": 0.25, "none": 0.0}
"""The least relevance of each match, the best first. Calibrated by `bench relevance`."""
RELEVANCE_ALPHA = 0.3
"""The weight of the cosine in the relevance. `hansei_search` has the same number."""
DEFAULT_ALPHA = {"anchored": RELEVANCE_ALPHA, "minmax": 0.5, "rrf": 0.5}
"""Default weight of the vector score for each fusion (measured, see `docs/decisions/search.md`)."""


class SearchCall(NamedTuple):
    """The arguments of `hansei_search` after the tenant. Its parameters have these names
    with `p_`.
    """

    projects: Sequence[str]
    scope_types: Sequence[str]
    scope_names: Sequence[str | None]
    model: str
    query_vector: HalfVector | None
    terms: Sequence[int]
    frequencies: Sequence[float]
    kind_ids: Sequence[int] | None
    kinds: Sequence[str] | None
    sections: Sequence[str] | None
    error_categories: Sequence[str] | None
    tags: Sequence[str] | None
    status: str
    min_confidence: float
    min_importance: float
    since: datetime | None
    until: datetime | None
    fusion: str
    alpha: float
    min_relevance: float
    top_k: int
    with_ranks: bool
    rank_by_usefulness: bool
    with_playbook: bool


_ARGUMENTS = ", ".join(
    f"p_{name} => ${n}" for n, name in enumerate(("tenant_id", *SearchCall._fields), start=1)
)
MEMORY_COLUMNS = SearchColumns(
    MemoryRecord, {field.name: field.name.rstrip("_") for field in fields(MemoryRecord)}
)
SEARCH_CALL = MEMORY_COLUMNS.call


@dataclass(frozen=True)
class SearchFilters:
    """Filters of a search. A list matches any of its items, `min_*` are inclusive, an empty filter
    does not filter. Tags match in any case. Section names match in any spelling, or by a slug of a
    searched playbook.
    """

    kinds: Sequence[MemoryKind] = ()
    sections: Sequence[str] = ()
    tags: Sequence[str] = ()
    error_categories: Sequence[str] = ()
    status: MemoryStatus = MemoryStatus.ACTIVE
    """Memories that are not active are not indexed: the database lists them by usefulness, and
    `search_memories` ranks them.
    """
    min_confidence: float = 0.0
    min_importance: float = 0.0
    since: datetime | None = None
    until: datetime | None = None


class SearchOptions(TypedDict, total=False):
    """Options of a search. Missing ones have their default."""

    top_k: int
    """Maximum number of hits; default 10."""
    filters: SearchFilters | None
    fusion: str
    """`anchored` (default), `minmax` or `rrf`."""
    alpha: float | None
    """Weight of the vector score, 0..1; None for the default of the fusion."""
    explain: bool
    """Return the ranks by vector and by BM25."""
    min_match: Match
    """The least match of a hit; default `none`."""
    rank_by: RankBy
    """`usefulness` sorts the best max(100, 4 × top_k) by combined_score × (0.5 + usefulness)."""
    with_header: bool
    """Return the header of the searched playbook, which is the only address."""


@dataclass(frozen=True)
class EmbeddedQuery:
    """An embedded query: a unit vector of shape (dimensions,), and term IDs with their weight in
    the query. A query without text has the vector (0) and no terms.
    """

    model: str
    vector: NDArray[np.float32]
    terms: dict[int, float]

    @property
    def is_empty(self) -> bool:
        return not self.terms and not self.vector.any()


def to_search_options(body: SearchRequest, settings: Settings) -> SearchOptions:
    """The options of a request. Without `alpha`, `minmax` uses `HANSEI_SEARCH_ALPHA`."""
    uses_configured_alpha = body.alpha is None and body.fusion == "minmax"
    return SearchOptions(
        top_k=body.top_k,
        filters=SearchFilters(
            kinds=body.kinds,
            sections=body.section_filter or (),
            tags=body.tags,
            error_categories=body.error_categories,
            status=MemoryStatus(body.status),
            min_confidence=body.min_confidence,
            min_importance=body.min_importance,
            since=body.since,
            until=body.until,
        ),
        fusion=body.fusion,
        alpha=settings.search_alpha if uses_configured_alpha else body.alpha,
        min_match=body.min_match,
        explain=body.explain,
        rank_by=body.rank_by,
    )


def build_call(
    query: EmbeddedQuery, addresses: Sequence[ScopeAddress | ScopeArea], options: SearchOptions
) -> SearchCall:
    projects, types, names = zip(*dict.fromkeys(addresses), strict=True)
    filters, fusion = options.get("filters") or SearchFilters(), options.get("fusion", "anchored")
    lists_only = query.is_empty or filters.status is not MemoryStatus.ACTIVE
    return SearchCall(
        projects=projects,
        scope_types=types,
        scope_names=names,
        model=query.model,
        query_vector=None if lists_only else HalfVector(query.vector),
        terms=list(query.terms),
        frequencies=list(query.terms.values()),
        kind_ids=[KIND_IDS[kind] for kind in filters.kinds] or None,
        kinds=[kind.value for kind in filters.kinds] or None,
        sections=list(filters.sections) or None,
        error_categories=list(filters.error_categories) or None,
        tags=fold_tags(filters.tags) or None,
        status=filters.status.value,
        min_confidence=filters.min_confidence,
        min_importance=filters.min_importance,
        since=filters.since,
        until=filters.until,
        fusion=fusion,
        alpha=vector_weight(query, options),
        min_relevance=MIN_RELEVANCE[options.get("min_match", "none")],
        top_k=options.get("top_k", 10),
        with_ranks=options.get("explain", False),
        rank_by_usefulness=options.get("rank_by") == "usefulness",
        with_playbook=options.get("with_header", False),
    )


def vector_weight(query: EmbeddedQuery, options: SearchOptions) -> float:
    """The weight of the vector score. A query without terms or without a vector is ranked by the
    other score alone, unless scores are absolute: then the missing score is 0.
    """
    alpha, fusion = options.get("alpha"), options.get("fusion", "anchored")
    if not query.terms and (fusion != "anchored" or alpha is not None):
        return 1.0
    if not query.vector.any() and (fusion != "anchored" or alpha is not None):
        return 0.0
    return DEFAULT_ALPHA[fusion] if alpha is None else alpha
