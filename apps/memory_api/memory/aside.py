"""Search for a text, whatever the status.

Active memories are found by `hansei_search`. What was set aside (quarantined, archived) is in no
index: its rows are read, embedded and scored here, by the same formulas. That is for a person who
reviews, not for an agent at work.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Unpack
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from apps.memory_api.core.db import Sessions
from apps.memory_api.embeddings.port import Embedder
from apps.memory_api.memory.find import Filters, How, Question, alpha_of, ask, search_once
from apps.memory_api.memory.found import Found, Hit
from apps.memory_api.memory.prepare import heaviest
from apps.memory_api.memory.schemas import Status
from apps.memory_api.memory.scopes import Address, Area
from apps.memory_api.text.tokens import document_weights

LOOKED_AT = 1_000
"""Rows set aside that a search looks at, the most useful first."""
Scores = NDArray[np.float64]
"""Shape (rows,)."""


async def search_text(
    sessions: Sessions,
    embedder: Embedder,
    tenant_id: UUID,
    query_text: str,
    addresses: Sequence[Address | Area],
    **how: Unpack[How],
) -> Found:
    """The best of the scopes for a text; a text of nothing lists by usefulness."""
    question = await ask(embedder, query_text)
    filters = how.get("filters") or Filters()
    if filters.status is Status.ACTIVE or question.is_empty:
        return await search_once(sessions, tenant_id, question, addresses, **how)
    read = How(filters=filters, top_k=LOOKED_AT, head=how.get("head", False))
    found = await search_once(sessions, tenant_id, question, addresses, **read)
    if not found.hits:
        return found
    vectors = await embedder.embed_documents([hit.memory.searchable_text for hit in found.hits])
    cosines = (vectors @ question.vector).astype(np.float64)
    return Found(_best(found.hits, cosines, question, how), found.head)


def _best(hits: Sequence[Hit], cosines: Scores, question: Question, how: How) -> list[Hit]:
    words = _bm25(hits, question)
    scale = SCALES[how.get("fusion", "anchored")]
    alpha = alpha_of(question, how)
    columns = (scale(cosines), scale(words), cosines, words, _ranks(cosines), _ranks(words))
    scored = [
        Hit(
            hit.memory,
            vector_score=vector,
            bm25_score=word,
            combined_score=alpha * vector + (1 - alpha) * word,
            cosine=cosine,
            bm25=bm25,
            dense_rank=dense or None,
            lexical_rank=lexical or None,
            playbook=hit.playbook,
        )
        for hit, vector, word, cosine, bm25, dense, lexical in zip(
            hits, *(column.tolist() for column in columns), strict=True
        )
    ]
    useful = how.get("rank_by") == "usefulness"

    def order(hit: Hit) -> tuple[float, int]:
        weight = 0.5 + hit.memory.usefulness if useful else 1.0
        return -hit.combined_score * weight, -hit.memory.n

    return sorted(scored, key=order)[: how.get("top_k", 10)]


def _bm25(hits: Sequence[Hit], question: Question) -> Scores:
    """N and df are counted in each scope, among the rows looked at."""
    weights = [heaviest(document_weights(hit.memory.searchable_text)) for hit in hits]
    sizes = Counter(hit.memory.scope for hit in hits)
    holders: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for hit, held in zip(hits, weights, strict=True):
        holders[hit.memory.scope].update(held.keys())

    def idf(scope: int, term: int) -> float:
        df = holders[scope][term]
        return math.log(1 + (sizes[scope] - df + 0.5) / (df + 0.5))

    return np.array(
        [
            sum(
                held[term] * frequency * idf(hit.memory.scope, term)
                for term, frequency in question.terms.items()
                if term in held
            )
            for hit, held in zip(hits, weights, strict=True)
        ],
        np.float64,
    )


def _anchored(raw: Scores) -> Scores:
    top = raw.max()
    return np.maximum(raw, 0) / top if top > 0 else np.zeros_like(raw)


def _minmax(raw: Scores) -> Scores:
    low, span = raw.min(), np.ptp(raw)
    return (raw - low) / span if span > 0 else np.full_like(raw, 0.5)


def _ranks(raw: Scores) -> NDArray[np.int64]:
    """1 for the best, equal scores the same; 0 for a row that the leg did not find."""
    return np.where(raw > 0, 1 + (raw[:, np.newaxis] < raw).sum(axis=1), 0)


def _rrf(raw: Scores) -> Scores:
    ranks = _ranks(raw)
    return np.where(ranks > 0, 1 / (60 + ranks), 0.0)


SCALES: dict[str, Callable[[Scores], Scores]] = {
    "anchored": _anchored,
    "minmax": _minmax,
    "rrf": _rrf,
}
