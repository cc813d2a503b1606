"""Sets with known answers, and their rankings without a database.

A set is a folder of ../shared/data/retrieval and one scope. The rankings are computed in the same
way as in SQL: each document is scored by both legs, the scores are fused, and ties keep the order
of the corpus.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.data import SHARED
from memory_api.memories.search.query import RELEVANCE_ALPHA

DEFAULT = SHARED / "retrieval"
TOP = 10
Scores = NDArray[np.float64]
"""Shape (queries, documents)."""


@dataclass(frozen=True)
class RetrievalSet:
    name: str
    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, float]]


def load(folder: Path) -> RetrievalSet:
    """Load a set, without queries that have no relevant document."""

    def texts(file: str) -> dict[str, str]:
        lines = (folder / file).read_text("utf8").splitlines()
        return {row["id"]: row["text"] for row in map(json.loads, lines)}

    relevant: dict[str, dict[str, float]] = defaultdict(dict)
    for line in (folder / "qrels.tsv").read_text("utf8").splitlines()[1:]:
        query, document, score = line.split("\t")
        if float(score) > 0:
            relevant[query][document] = float(score)
    queries = {key: text for key, text in texts("queries.jsonl").items() if key in relevant}
    return RetrievalSet(folder.name, texts("corpus.jsonl"), queries, dict(relevant))


def sets() -> list[RetrievalSet]:
    """The retrieval sets. Empty if the shared data does not exist."""
    return [load(file.parent) for file in sorted(DEFAULT.glob("*/qrels.tsv"))]


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
