"""Memories to search, and plain Python that searches them the slow and obvious way."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from memory_api.embeddings.tenant_models import TenantEmbedder
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import EmbeddedQuery, SearchFilters
from memory_api.runtime import Runtime

WORDS = [
    *("timeout", "retry", "page", "cursor", "login", "token", "parser", "schema", "index", "merge"),
    *("deploy", "cache", "queue", "invoice", "refund", "flight", "seat", "ticket", "unit", "rate"),
    *("再試行", "予約", "検索", "認証", "失敗", "原因", "設定", "接続", "料金", "変更"),
]
TAGS = ("net", "auth", "data", "ui")
SECTIONS = ("strategies", "pitfalls", None)
ERRORS = ("timeout_error", "tool_error", None)
KINDS = (MemoryKind.REFLECTION, MemoryKind.STRATEGY)


def drafts(count: int, seed: int = 0, scopes: int = 1) -> list[MemoryDraft]:
    """Random memories of one project, English and Japanese mixed."""
    choose = random.Random(seed)
    return [
        MemoryDraft(
            kind=choose.choice(KINDS),
            project_id="p",
            is_guarded=True,
            address=("p", "collection", f"c{choose.randrange(scopes)}"),
            content=f"{' '.join(choose.choices(WORDS, k=choose.randint(3, 14)))} no {number}",
            tags=choose.sample(TAGS, choose.randint(0, 3)),
            section=choose.choice(SECTIONS),
            error_category=choose.choice(ERRORS),
            importance=round(choose.random(), 3),
        )
        for number in range(count)
    ]


async def write(
    runtime: Runtime, tenant_id: UUID, items: Sequence[MemoryDraft]
) -> list[PreparedMemory]:
    prepared = await prepare_memories(TenantEmbedder(runtime.default_embedder), items)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await insert_memories(session, prepared)
    return prepared


@dataclass(frozen=True)
class Expected:
    cosine: float
    bm25: float
    vector_score: float
    bm25_score: float
    combined: float


def matches_filters(draft: MemoryDraft, filters: SearchFilters) -> bool:
    """What `SearchFilters` means, one draft at a time."""
    return (
        (not filters.kinds or draft.kind in filters.kinds)
        and (not filters.sections or draft.section in filters.sections)
        and (not filters.error_categories or draft.error_category in filters.error_categories)
        and (not filters.tags or bool(set(filters.tags) & set(draft.tags)))
        and filters.min_confidence <= 0.5
        and draft.importance >= filters.min_importance
    )


def search_by_reference(
    items: Sequence[PreparedMemory],
    question: EmbeddedQuery,
    filters: SearchFilters,
    *,
    fusion: str,
    alpha: float,
) -> dict[UUID, Expected]:
    """Every memory that passes, with its scores. Exact while all of them are candidates."""
    bm25 = _bm25(items, question)
    kept = [item for item in items if matches_filters(item.draft, filters)]
    if not kept:
        return {}
    query = question.vector.astype(np.float16).astype(np.float32)
    cosines = np.array(
        [float(item.vector.astype(np.float16).astype(np.float32) @ query) for item in kept]
    )
    words = np.array([bm25[item.draft.id][0] for item in kept])
    shares = np.array([bm25[item.draft.id][1] for item in kept])
    scale: Callable[[np.ndarray], np.ndarray] = {
        "anchored": _anchored,
        "minmax": _minmax,
        "rrf": _rrf,
    }[fusion]
    dense, lexical = scale(cosines), scale(shares)
    combined = alpha * dense + (1 - alpha) * lexical
    return {
        item.draft.id: Expected(*map(float, row))
        for item, row in zip(
            kept, zip(cosines, words, dense, lexical, combined, strict=True), strict=True
        )
    }


def _bm25(
    items: Sequence[PreparedMemory], question: EmbeddedQuery
) -> dict[UUID, tuple[float, float]]:
    """The score, and its share of the weights of the query. Per scope: df and N are counted where
    the memory lives.
    """
    found: dict[UUID, tuple[float, float]] = {}
    for item in items:
        place = item.draft.scope_address
        mates = [other for other in items if other.draft.scope_address == place]
        total = limit = 0.0
        for term, frequency in question.terms.items():
            df = sum(term in mate.weights for mate in mates)
            idf = math.log(1 + (len(mates) - df + 0.5) / (df + 0.5))
            limit += frequency * idf
            total += item.weights.get(term, 0.0) * frequency * idf
        found[item.draft.id] = total, total / limit if limit else 0.0
    return found


def _anchored(scores: np.ndarray) -> np.ndarray:
    return np.clip(scores, 0, 1)


def _minmax(scores: np.ndarray) -> np.ndarray:
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.full_like(scores, 0.5)


def ranks(scores: np.ndarray) -> list[int | None]:
    """From 1; None for what scores nothing, equal scores the same."""
    rounded = scores.astype(np.float32)
    return [1 + int((rounded > s).sum()) if s > 0 else None for s in rounded]


def _rrf(scores: np.ndarray) -> np.ndarray:
    return np.array([1 / (60 + rank) if rank else 0.0 for rank in ranks(scores)])
