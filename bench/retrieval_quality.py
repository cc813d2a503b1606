"""Sets with known answers, and their rankings without a database.

A set is a folder of ../shared/data/retrieval and one scope. The rankings are computed in the same
way as in SQL: each document is scored by both legs, the scores are fused, and ties keep the order
of the corpus. "Python BM25" uses the true average length and plain query frequencies, "bm25s" is
the package of this name with its default tokens.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory_api.memories.search.query import RELEVANCE_ALPHA
from memory_api.text.terms import K1, B, tokenize

DEFAULT = Path(__file__).parents[2] / "shared/data/retrieval"
TOP = 10
Scores = NDArray[np.float64]
"""Shape (queries, documents)."""


@dataclass(frozen=True)
class RetrievalSet:
    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, float]]
    answers: dict[str, str]
    """The expected words by query, where the set has them."""


def load(folder: Path) -> RetrievalSet:
    """Load a set, without queries that have no relevant document."""

    def texts(file: str, name: str = "text") -> dict[str, str]:
        lines = (folder / file).read_text("utf8").splitlines()
        return {row["id"]: row[name] for row in map(json.loads, lines) if name in row}

    relevant: dict[str, dict[str, float]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text("utf8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if float(score) > 0:
            relevant[query][document] = float(score)
    queries = {key: text for key, text in texts("queries.jsonl").items() if key in relevant}
    answers = texts("queries.jsonl", "answer")
    return RetrievalSet(folder.name, texts("corpus.jsonl"), queries, dict(relevant), answers)


def lexical(
    documents: Sequence[Mapping[Any, float]], queries: Sequence[Mapping[Any, float]]
) -> Scores:
    """Sum over shared terms of weight × query weight × idf, df counted over these documents,
    divided by the sum over all terms of the query of query weight × idf.
    """
    postings: dict[Any, list[tuple[int, float]]] = defaultdict(list)
    for i, weights in enumerate(documents):
        for term, weight in weights.items():
            postings[term].append((i, weight))
    scores = np.zeros((len(queries), len(documents)))
    for row, query in zip(scores, queries, strict=True):
        total = 0.0
        for term, frequency in query.items():
            found = postings.get(term, [])
            idf = math.log(1 + (len(documents) - len(found) + 0.5) / (len(found) + 0.5))
            total += frequency * idf
            for i, weight in found:
                row[i] += weight * frequency * idf
        row /= total or 1.0
    return scores


def python_bm25(data: RetrievalSet) -> Scores:
    """Textbook BM25 with our terms and the true average length."""
    documents = [Counter(tokenize(text)) for text in data.documents.values()]
    average = sum(counts.total() for counts in documents) / len(documents)

    def weights(counts: Counter[str]) -> dict[str, float]:
        norm = K1 * (1 - B + B * counts.total() / average)
        return {term: tf * (K1 + 1) / (tf + norm) for term, tf in counts.items()}

    queries = [Counter(tokenize(text)) for text in data.queries.values()]
    return lexical([weights(counts) for counts in documents], queries)


def bm25s_default(data: RetrievalSet) -> Scores:
    bm25s = import_module("bm25s")
    index = bm25s.BM25()
    index.index(
        bm25s.tokenize(list(data.documents.values()), show_progress=False), show_progress=False
    )
    asked = bm25s.tokenize(list(data.queries.values()), return_ids=False, show_progress=False)
    return np.array([index.get_scores(tokens) for tokens in asked], np.float64)


def anchored(dense: Scores, bm25: Scores, alpha: float = RELEVANCE_ALPHA) -> Scores:
    """Each leg from 0 to 1, the same for every query. `bm25` is that of `lexical`."""
    return alpha * np.clip(dense, 0, 1) + (1 - alpha) * np.clip(bm25, 0, 1)


def minmax(dense: Scores, bm25: Scores, alpha: float = 0.5) -> Scores:
    """Each leg scaled to 0..1; .5 if all documents have the same score."""
    return alpha * _stretched(dense) + (1 - alpha) * _stretched(bm25)


def rrf(dense: Scores, bm25: Scores, k: int = 60) -> Scores:
    """Sum of 1 / (k + rank); a document without a shared term has no lexical rank."""
    return 1 / (k + _ranks(dense)) + np.where(bm25 > 0, 1 / (k + _ranks(bm25)), 0)


def _stretched(scores: Scores) -> Scores:
    low = scores.min(axis=1, keepdims=True)
    span = scores.max(axis=1, keepdims=True) - low
    return np.divide(scores - low, span, out=np.full_like(scores, 0.5), where=span > 0)


def _ranks(scores: Scores) -> Scores:
    """The rank of each document, starting at 1."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranks = np.empty_like(scores)
    np.put_along_axis(ranks, order, np.arange(1.0, scores.shape[1] + 1)[np.newaxis], axis=1)
    return ranks


def quality(data: RetrievalSet, scores: Scores) -> tuple[float, float]:
    """Mean recall@10 (of at most 10 relevant) and mean nDCG@10."""
    keys = list(data.documents)
    recalls: list[float] = []
    for query, row in zip(data.queries, scores, strict=True):
        relevant = data.relevant[query]
        hits = sum(keys[i] in relevant for i in _best(row))
        recalls.append(hits / min(TOP, len(relevant)))
    ndcgs = ndcg_per_query(keys, [data.relevant[query] for query in data.queries], scores)
    return float(np.mean(recalls)), float(np.mean(ndcgs))


def ndcg_per_query(
    keys: Sequence[str], relevant: Sequence[Mapping[str, float]], scores: Scores
) -> list[float]:
    """nDCG@10 of each row of `scores`. `keys` names the columns."""
    values: list[float] = []
    for gains_by_key, row in zip(relevant, scores, strict=True):
        gains = [gains_by_key.get(keys[i], 0.0) for i in _best(row)]
        ideal = sorted(gains_by_key.values(), reverse=True)[:TOP]
        values.append(_dcg(gains) / _dcg(ideal))
    return values


def _best(row: NDArray[np.float64]) -> list[int]:
    return np.argsort(-row, kind="stable")[:TOP].tolist()


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 2) for rank, gain in enumerate(gains))
