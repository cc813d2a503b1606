"""How near two pieces of advice are: the mean of the cosine of their vectors and their relative
BM25 score (docs/decisions/consolidation.md).

Nearness selects what a model compares; it does not decide that two texts are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import log

from memory_api.text.terms import document_weights, query_terms


class NearnessScale:
    """Nearness of texts, with the document frequencies of `texts`. Each text is tokenized once,
    however often it is compared.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._documents = {text: document_weights(text) for text in texts}
        self._document_counts = Counter(
            term for weights in self._documents.values() for term in weights
        )
        self._queries: dict[str, dict[int, float]] = {}

    def measure(self, first: str, second: str, cosine: float) -> float:
        """The nearness of two texts, 0 to 1. `cosine` is that of their vectors."""
        lexical = (self._relative_bm25(first, second) + self._relative_bm25(second, first)) / 2
        return (max(0.0, cosine) + lexical) / 2

    def _relative_bm25(self, query: str, document: str) -> float:
        """BM25 of a document for a query, relative to that of the query's own text, 0 to 1."""
        highest = self._bm25(query, query)
        return min(1.0, self._bm25(query, document) / highest) if highest else 0.0

    def _bm25(self, query: str, document: str) -> float:
        weights = self._documents.get(document)
        if weights is None:
            weights = self._documents[document] = document_weights(document)
        size = len(self._documents)
        terms = self._queries.get(query)
        if terms is None:
            terms = self._queries[query] = query_terms(query)
        score = 0.0
        for term, weight in terms.items():
            if term in weights:
                count = self._document_counts[term]
                score += weight * weights[term] * log(1 + (size - count + 0.5) / (count + 0.5))
        return score
