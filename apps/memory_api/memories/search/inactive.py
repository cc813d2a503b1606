"""Ranks quarantined and archived memories.

They are in no index, so their rows are embedded and scored here with the formulas of
`hansei_search`. This is slow and meant for people who review, not for agents.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from memory_api.memories.index.drafts import top_terms
from memory_api.memories.search.query import (
    MIN_RELEVANCE,
    RELEVANCE_ALPHA,
    EmbeddedQuery,
    Found,
    SearchHit,
    SearchOptions,
    vector_weight,
)
from memory_api.text.terms import document_weights

Scores = NDArray[np.float64]
"""Shape (rows,)."""


def rank_inactive(
    hits: Sequence[SearchHit[Found]], cosines: Scores, query: EmbeddedQuery, options: SearchOptions
) -> list[SearchHit[Found]]:
    """The best `top_k` hits. `cosines` are the cosines of the hits, in their order."""
    bm25_scores, limits = _bm25(hits, query)
    lexical = np.divide(bm25_scores, limits, out=np.zeros_like(bm25_scores), where=limits > 0)
    normalize = NORMALIZERS[options.get("fusion", "anchored")]
    alpha = vector_weight(query, options)
    relevance = RELEVANCE_ALPHA * _anchored(cosines) + (1 - RELEVANCE_ALPHA) * _anchored(lexical)
    columns = (
        normalize(cosines),
        normalize(lexical),
        relevance,
        cosines,
        bm25_scores,
        _ranks(cosines),
        _ranks(lexical),
    )
    scored = [
        SearchHit(
            hit.memory,
            vector_score=vector,
            bm25_score=words,
            combined_score=alpha * vector + (1 - alpha) * words,
            relevance=relevant,
            cosine=cosine,
            bm25=bm25,
            dense_rank=dense_rank or None,
            lexical_rank=lexical_rank or None,
            playbook=hit.playbook,
        )
        for hit, vector, words, relevant, cosine, bm25, dense_rank, lexical_rank in zip(
            hits, *(column.tolist() for column in columns), strict=True
        )
    ]
    least = MIN_RELEVANCE[options.get("min_match", "none")]
    by_usefulness = options.get("rank_by") == "usefulness"

    def sort_key(hit: SearchHit[Found]) -> tuple[float, int]:
        weight = 0.5 + hit.memory.usefulness if by_usefulness else 1.0
        return -hit.combined_score * weight, -hit.memory.seq

    kept = [hit for hit in scored if hit.relevance >= least]
    return sorted(kept, key=sort_key)[: options.get("top_k", 10)]


def _bm25(hits: Sequence[SearchHit[Found]], query: EmbeddedQuery) -> tuple[Scores, Scores]:
    """The BM25 scores, and the sum of the weights of the query's terms in each scope. N and df are
    counted among these hits.
    """
    weights = [top_terms(document_weights(hit.memory.searchable_text)) for hit in hits]
    sizes = Counter(hit.memory.scope_id for hit in hits)
    frequencies: defaultdict[int, Counter[int]] = defaultdict(Counter)
    """Scope ID → term ID → number of hits with the term."""
    for hit, terms in zip(hits, weights, strict=True):
        frequencies[hit.memory.scope_id].update(terms.keys())

    def idf(scope: int, term: int) -> float:
        df = frequencies[scope][term]
        return math.log(1 + (sizes[scope] - df + 0.5) / (df + 0.5))

    scores, limits = np.zeros(len(hits)), np.zeros(len(hits))
    for row, (hit, terms) in enumerate(zip(hits, weights, strict=True)):
        for term, frequency in query.terms.items():
            weight = frequency * idf(hit.memory.scope_id, term)
            limits[row] += weight
            scores[row] += terms.get(term, 0.0) * weight
    return scores, limits


def _anchored(raw: Scores) -> Scores:
    return np.clip(raw, 0, 1)


def _minmax(raw: Scores) -> Scores:
    low, span = raw.min(), np.ptp(raw)
    return (raw - low) / span if span > 0 else np.full_like(raw, 0.5)


def _ranks(raw: Scores) -> NDArray[np.int64]:
    """1 for the highest score, the same rank for equal scores, 0 for a score of 0 or less."""
    return np.where(raw > 0, 1 + (raw[:, np.newaxis] < raw).sum(axis=1), 0)


def _rrf(raw: Scores) -> Scores:
    ranks = _ranks(raw)
    return np.where(ranks > 0, 1 / (60 + ranks), 0.0)


NORMALIZERS: dict[str, Callable[[Scores], Scores]] = {
    "anchored": _anchored,
    "minmax": _minmax,
    "rrf": _rrf,
}
