"""Hybrid search over a playbook in memory (S2): cosine and Okapi BM25, each scaled to 0..1, then
combined.

The service searches in SQL, with its own BM25 and scores. This is the documented class.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memory_api.core.settings import Settings
from memory_api.core.telemetry import get_logger
from memory_api.library.blocking import LoopThread, require_no_event_loop
from memory_api.playbooks.models import Bullet, Playbook, SearchQuery, SearchResult
from memory_api.playbooks.sections import (
    DEFAULT_SECTIONS,
    matching_spellings,
    requested_spelling,
)

log = get_logger(__name__)
T = TypeVar("T")
Numbers = Iterable[float]
Vector = Sequence[float]
MIN_SCORE_RANGE = 1e-12
"""A smaller relative range of scores is rounding error; such scores are equal."""


class EmbeddingModel(Protocol):
    """Turns text into vectors; synchronous or asynchronous."""

    def embed_query(self, text: str) -> Numbers | Awaitable[Numbers]: ...
    def embed_documents(
        self, texts: list[str]
    ) -> Iterable[Numbers] | Awaitable[Iterable[Numbers]]: ...


class EmbeddingPort(Protocol):
    """The methods of `EmbeddingClient` that `HybridSearch` calls."""

    def embed_query(self, text: str) -> list[float]: ...
    def embed_documents(self, texts: list[str]) -> list[list[float]]: ...


class EmbeddingClient:
    """Synchronous interface to an embedding model. An asynchronous model runs on this client's own
    event loop until `close()`. Errors of the model are logged and raised.

    Raises RuntimeError if an asynchronous model is called inside a running event loop, which would
    block it.
    """

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model
        self._loop = LoopThread()
        self.close = self._loop.close

    def embed_query(self, text: str) -> list[float]:
        with _logged_failure():
            return _floats(self._resolve(self.model.embed_query(text)))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in the order of the texts."""
        with _logged_failure():
            return [_floats(vector) for vector in self._resolve(self.model.embed_documents(texts))]

    def _resolve(self, result: T | Awaitable[T]) -> T:
        if not inspect.isawaitable(result):
            return cast("T", result)
        try:
            require_no_event_loop("the embedding model")
        except RuntimeError:
            if inspect.iscoroutine(result):
                result.close()
            raise
        return self._loop.run(_await_result(result))


@contextmanager
def _logged_failure() -> Generator[None]:
    """Logs an error with its stack and raises it."""
    try:
        yield
    except Exception as error:
        log.error("embedding_failed", error=error, exc_info=error)
        raise


async def _await_result(result: Awaitable[T]) -> T:
    return await result


def _floats(vector: Numbers) -> list[float]:
    return [float(number) for number in vector]


class HybridSearch:
    """`alpha` is the weight of the vector score, 0..1. `tokenize` splits text for BM25; the default
    is the split at whitespace that S2 specifies.
    """

    def __init__(
        self,
        embedding_client: EmbeddingPort,
        alpha: float = 0.5,
        tokenize: Callable[[str], Sequence[str]] = str.split,
    ) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"`alpha` must be between 0 and 1, not {alpha}.")
        # Any other client is wrapped, so that its errors are logged too.
        self.embedding_client = (
            embedding_client
            if isinstance(embedding_client, EmbeddingClient)
            else EmbeddingClient(embedding_client)
        )
        self.alpha = alpha
        self.tokenize = tokenize

    def search(self, query: SearchQuery, playbook: Playbook) -> list[SearchResult]:
        """At most `top_k` bullets that pass the filters, best first; ties are in the order of the
        playbook.

        Logs and raises errors of the embedding model.
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
        query = self.embedding_client.embed_query(query_text)
        documents = self.embedding_client.embed_documents(texts)
        with _logged_failure():
            return cosines(query, documents)


def filter_candidates(query: SearchQuery, bullets: Sequence[Bullet]) -> list[Bullet]:
    """Bullets with the requested status, section and minimum confidence and at least one requested
    tag.
    """
    names = {bullet.section for bullet in bullets}
    section_filter = query.section_filter or ()
    sections = {
        spelling
        for name in section_filter
        for spelling in matching_spellings(DEFAULT_SECTIONS, names, name)
    }
    tags = set(query.tags)
    return [
        _with_section(bullet, section_filter)
        for bullet in bullets
        if (not section_filter or bullet.section in sections)
        and (not tags or not tags.isdisjoint(bullet.tags))
        and bullet.confidence_score >= query.min_confidence
        and bullet.status == query.status
    ]


def _with_section(bullet: Bullet, section_filter: Sequence[str]) -> Bullet:
    section = requested_spelling(DEFAULT_SECTIONS, bullet.section, section_filter)
    return bullet if section == bullet.section else bullet.model_copy(update={"section": section})


def combine_scores(vector_score: float, bm25_score: float, alpha: float) -> float:
    """alpha · vector + (1 - alpha) · BM25, all 0..1."""
    return alpha * vector_score + (1 - alpha) * bm25_score


def minmax(scores: Sequence[float]) -> list[float]:
    """Scales scores so that the lowest is 0 and the highest 1; all are 0.5 if they are equal."""
    low, high = min(scores), max(scores)
    if high - low <= MIN_SCORE_RANGE * max(1.0, abs(high), abs(low)):
        return [0.5] * len(scores)
    return [(score - low) / (high - low) for score in scores]


def cosines(query: Vector, documents: Sequence[Vector]) -> list[float]:
    """Cosine of the query with each document, -1..1; 0 for a zero vector.

    Raises ValueError if lengths differ or a number is not finite.
    """
    query_vector = np.asarray(query, dtype=np.float64)
    matrix = np.asarray(documents, dtype=np.float64)
    if matrix.shape != (len(documents), len(query_vector)):
        raise ValueError("The query vector and the document vectors must have the same length.")
    if not (np.isfinite(query_vector).all() and np.isfinite(matrix).all()):
        raise ValueError("Embeddings must contain only finite numbers.")
    norms = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query_vector)
    # Sums row by row instead of `@`, so that equal rows get exactly equal scores.
    scores = (matrix * query_vector).sum(axis=1) / np.where(norms == 0.0, 1.0, norms)
    return _floats(cast("list[float]", scores.tolist()))


def okapi_bm25(
    query: Sequence[str],
    corpus: Sequence[Sequence[str]],
    k1: float = 1.5,
    b: float = 0.75,
    epsilon: float = 0.25,
) -> list[float]:
    """Okapi BM25 of each document for the query, equal to `BM25Okapi` of rank_bm25.

    A term in more than half of the documents would have a negative idf; it gets `epsilon` × the
    average idf.
    """
    frequencies = [Counter(document) for document in corpus]
    document_counts = Counter(term for document in frequencies for term in document)
    if not document_counts:
        return [0.0] * len(corpus)
    idf = {
        term: math.log(len(corpus) - count + 0.5) - math.log(count + 0.5)
        for term, count in document_counts.items()
    }
    min_idf = epsilon * sum(idf.values()) / len(idf)
    lengths = np.array([len(document) for document in corpus], dtype=np.float64)
    damping = k1 * (1 - b + b * lengths / lengths.mean())
    scores: NDArray[Any] = np.zeros(len(corpus))
    for term in query:
        if term in idf:
            term_counts = np.array([document[term] for document in frequencies], dtype=np.float64)
            weight = idf[term] if idf[term] >= 0 else min_idf
            scores += weight * term_counts * (k1 + 1) / (term_counts + damping)
    return _floats(cast("list[float]", scores.tolist()))


def open_hybrid_search(settings: Settings, embedder: EmbeddingModel) -> HybridSearch:
    """The hybrid search of S2 with the weight `SEARCH_ALPHA`."""
    return HybridSearch(EmbeddingClient(embedder), settings.search_alpha)
