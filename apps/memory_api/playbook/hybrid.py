"""Spec 2's hybrid search over a playbook in memory: cosine and Okapi BM25, each scaled to 0..1,
then blended.

The service searches in SQL; this is the documented class, and the reference for `fusion: "minmax"`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from apps.memory_api.playbook.schemas import Bullet, Playbook, SearchQuery, SearchResult
from apps.memory_api.playbook.sections import DEFAULT_SECTIONS, spellings

logger = logging.getLogger(__name__)
T = TypeVar("T")
Numbers = Iterable[float]
Vector = Sequence[float]
EQUAL = 1e-12
"""Scores closer together than this are the same score: what is left is rounding."""


class EmbeddingModel(Protocol):
    """What turns text into vectors, plain or asynchronous."""

    def embed_query(self, text: str) -> Numbers | Awaitable[Numbers]: ...
    def embed_documents(
        self, texts: list[str]
    ) -> Iterable[Numbers] | Awaitable[Iterable[Numbers]]: ...


class Embeds(Protocol):
    """What `HybridSearch` needs of an `EmbeddingClient`."""

    def embed_query(self, text: str) -> list[float]: ...
    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...


class EmbeddingClient:
    """A plain face for an embedding model. An asynchronous one runs on a loop of its own, kept
    until `close()`.

    Raises RuntimeError when an asynchronous model is called inside a running event loop, which
    would block it.
    """

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()
        # A model's connections belong to the loop that opened them: every call must meet the same.
        self.close = weakref.finalize(self, self._runner.close)

    def embed_query(self, text: str) -> list[float]:
        """The vector of one query."""
        return _floats(self._settle(self.model.embed_query(text)))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in their order."""
        return [_floats(vector) for vector in self._settle(self.model.embed_documents(texts))]

    def _settle(self, answer: T | Awaitable[T]) -> T:
        if not inspect.isawaitable(answer):
            return cast("T", answer)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with self._lock:
                return self._runner.run(_wait(answer))
        if inspect.iscoroutine(answer):
            answer.close()
        raise RuntimeError(
            "EmbeddingClient is synchronous; await the embedder itself in async code"
        )


async def _wait(answer: Awaitable[T]) -> T:
    return await answer


def _floats(vector: Numbers) -> list[float]:
    return [float(x) for x in vector]


class HybridSearch:
    """`alpha` is the weight of the vector score, 0..1. `tokenize` splits for BM25; the spec splits
    at white space.
    """

    def __init__(
        self,
        embedding_client: Embeds,
        alpha: float = 0.5,
        tokenize: Callable[[str], Sequence[str]] = str.split,
    ) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha is between 0 and 1, not {alpha}")
        self.embedding_client = embedding_client
        self.alpha = alpha
        self.tokenize = tokenize

    def search(self, query: SearchQuery, playbook: Playbook) -> list[SearchResult]:
        """At most `top_k` hits, best first, ties in the order of the playbook; of the bullets that
        pass the query's filters.

        An error of the embedding is logged and raised.
        """
        candidates = filter_candidates(query, playbook.bullets)
        if not candidates:
            return []
        texts = [bullet.searchable_text for bullet in candidates]
        vector_scores = minmax(self._cosines(query.query_text, texts))
        corpus = [self.tokenize(text) for text in texts]
        bm25_scores = minmax(okapi_bm25(self.tokenize(query.query_text), corpus))
        results = [
            SearchResult(
                bullet=bullet,
                vector_score=vector,
                bm25_score=bm25,
                combined_score=combine_scores(vector, bm25, self.alpha),
            )
            for bullet, vector, bm25 in zip(candidates, vector_scores, bm25_scores, strict=True)
        ]
        results.sort(key=lambda result: result.combined_score, reverse=True)
        return results[: query.top_k]

    def _cosines(self, query_text: str, texts: list[str]) -> list[float]:
        try:
            query = self.embedding_client.embed_query(query_text)
            documents = self.embedding_client.embed_documents(texts)
            return cosines(query, documents)
        except Exception:
            logger.exception("embedding failed")
            raise


def filter_candidates(query: SearchQuery, bullets: Sequence[Bullet]) -> list[Bullet]:
    """Bullets of the status (active unless asked otherwise), in one of the sections, with one of
    the tags and at least the confidence asked for.
    """
    names = {bullet.section for bullet in bullets}
    wanted = query.section_filter or ()
    sections = {n for name in wanted for n in spellings(DEFAULT_SECTIONS, names, name)}
    tags = set(query.tags)
    return [
        bullet
        for bullet in bullets
        if (not wanted or bullet.section in sections)
        and (not tags or not tags.isdisjoint(bullet.tags))
        and bullet.confidence_score >= query.min_confidence
        and bullet.status == query.status
    ]


def combine_scores(vector_score: float, bm25_score: float, alpha: float) -> float:
    """alpha · vector + (1 - alpha) · BM25; all 0..1."""
    return alpha * vector_score + (1 - alpha) * bm25_score


def minmax(scores: Sequence[float]) -> list[float]:
    """The scores scaled so that the lowest is 0 and the highest 1; all .5 when they are equal."""
    low, high = min(scores), max(scores)
    if high - low <= EQUAL * max(1.0, abs(high), abs(low)):
        return [0.5] * len(scores)
    return [(score - low) / (high - low) for score in scores]


def cosines(query: Vector, documents: Sequence[Vector]) -> list[float]:
    """Cosine of the query with each document, -1..1; 0 where either is a zero vector.

    Raises ValueError when lengths differ or a number is not finite.
    """
    q = np.asarray(query, dtype=np.float64)
    matrix = np.asarray(documents, dtype=np.float64)
    if matrix.shape != (len(documents), len(q)):
        raise ValueError("the vectors of query and documents differ in length")
    if not (np.isfinite(q).all() and np.isfinite(matrix).all()):
        raise ValueError("an embedding holds a number that is not finite")
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(q)
    # Summed row by row rather than by `@`, so that equal rows get equal scores to the last bit.
    scores = (matrix * q).sum(axis=1) / np.where(norms == 0.0, 1.0, norms)
    return _floats(cast("list[float]", scores.tolist()))


def okapi_bm25(
    query: Sequence[str],
    corpus: Sequence[Sequence[str]],
    k1: float = 1.5,
    b: float = 0.75,
    epsilon: float = 0.25,
) -> list[float]:
    """Okapi BM25 of each document for the query, as rank_bm25's `BM25Okapi` counts it.

    A term found in more than half of the documents, whose idf would be negative, gets `epsilon` ×
    the average idf.
    """
    frequencies = [Counter(document) for document in corpus]
    holders = Counter(term for document in frequencies for term in document)
    if not holders:
        return [0.0] * len(corpus)
    idf = {t: math.log(len(corpus) - n + 0.5) - math.log(n + 0.5) for t, n in holders.items()}
    floor = epsilon * sum(idf.values()) / len(idf)
    lengths = np.array([len(document) for document in corpus], dtype=np.float64)
    damping = k1 * (1 - b + b * lengths / lengths.mean())
    scores: NDArray[Any] = np.zeros(len(corpus))
    for term in query:
        if term in idf:
            found = np.array([document[term] for document in frequencies], dtype=np.float64)
            weight = idf[term] if idf[term] >= 0 else floor
            scores += weight * found * (k1 + 1) / (found + damping)
    return _floats(cast("list[float]", scores.tolist()))
