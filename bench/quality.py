"""Search quality by the size of a scope: `python -m bench quality`.

Each set with known answers is cut into random scopes of 50, 200 and 1,000 documents, several times
if it is small, and once left whole. A question is asked in each scope that holds one of its
documents. Prints nDCG@10: the mean over all questions and scopes of a set, and the mean over the
sets. The interval of 95 % is for the difference to the default, of the same questions in the same
scopes. The rankings are computed here in the same way as in SQL.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.harness import Report
from bench.retrieval_quality import (
    RetrievalSet,
    Scores,
    anchored,
    minmax,
    ndcg_per_query,
    rrf,
    sets,
)
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.text.terms import document_weights, query_terms

SIZES = (50, 200, 1_000, None)
"""Documents of a scope; None for the whole set."""
LEAST_SCOPES = 8
SEED = 0
DEFAULT_NAME = "anchored α .3 (default)"
Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class EmbeddedSet:
    """A set as matrices: weights of terms and vectors, one row per document or question. The terms
    are those of the questions.
    """

    data: RetrievalSet
    document_terms: Matrix
    question_terms: Matrix
    documents: Matrix
    questions: Matrix


@dataclass(frozen=True)
class ScopeScores:
    """One scope: the places of its documents and questions in the set, and both scores of each
    pair, of shape (questions, documents).
    """

    places: list[int]
    asked: list[int]
    dense: Scores
    bm25: Scores


def embedded(data: RetrievalSet, embedder: StaticEmbedder) -> EmbeddedSet:
    documents, questions = list(data.documents.values()), list(data.queries.values())
    asked = [query_terms(text) for text in questions]
    columns = {term: n for n, term in enumerate(sorted({t for terms in asked for t in terms}))}

    def matrix(rows: list[dict[int, float]]) -> Matrix:
        out = np.zeros((len(rows), len(columns)), np.float32)
        for row, terms in zip(out, rows, strict=True):
            for term in terms.keys() & columns.keys():
                row[columns[term]] = terms[term]
        return out

    return EmbeddedSet(
        data,
        matrix([document_weights(text) for text in documents]),
        matrix(asked),
        asyncio.run(embedder.embed_documents(documents)),
        asyncio.run(embedder.embed_documents(questions)),
    )


def cut(whole: EmbeddedSet, size: int | None) -> Iterator[ScopeScores]:
    """Random scopes of `size` documents that share no document, at least `LEAST_SCOPES` of them:
    the set is shuffled again until there are enough.
    """
    count = len(whole.data.documents)
    if size is None or size >= count:
        yield _scores(whole, np.arange(count))
        return
    per_shuffle = count // size
    for shuffle in range(math.ceil(LEAST_SCOPES / per_shuffle)):
        order = np.random.default_rng(SEED + shuffle).permutation(count)
        for start in range(0, per_shuffle * size, size):
            yield _scores(whole, np.sort(order[start : start + size]))


def _scores(whole: EmbeddedSet, places: NDArray[np.int64]) -> ScopeScores:
    keys = list(whole.data.documents)
    inside = {keys[place] for place in places}
    relevant = whole.data.relevant
    asked = [n for n, q in enumerate(whole.data.queries) if inside & relevant[q].keys()]
    weights = whole.document_terms[places]
    df = (weights > 0).sum(axis=0)
    idf = np.log(1 + (len(places) - df + 0.5) / (df + 0.5))
    wanted = whole.question_terms[asked] * idf
    sums = np.maximum(wanted.sum(axis=1, keepdims=True), 1e-9)
    return ScopeScores(
        places.tolist(),
        asked,
        (whole.questions[asked] @ whole.documents[places].T).astype(np.float64),
        (wanted @ weights.T / sums).astype(np.float64),
    )


RANKINGS: Mapping[str, Callable[[ScopeScores], Scores]] = {
    "BM25": lambda scope: scope.bm25,
    "vectors": lambda scope: scope.dense,
    DEFAULT_NAME: lambda scope: anchored(scope.dense, scope.bm25),
    "anchored α .2": lambda scope: anchored(scope.dense, scope.bm25, 0.2),
    "anchored α .6": lambda scope: anchored(scope.dense, scope.bm25, 0.6),
    "minmax α .5": lambda scope: minmax(scope.dense, scope.bm25),
    "rrf 60": lambda scope: rrf(scope.dense, scope.bm25),
}


def ndcg(whole: EmbeddedSet, scope: ScopeScores, scores: Scores) -> list[float]:
    """nDCG@10 of each question of a scope. Only documents of the scope count."""
    keys, questions = list(whole.data.documents), list(whole.data.queries)
    names = [keys[place] for place in scope.places]
    inside = set(names)
    relevant = [
        {key: gain for key, gain in whole.data.relevant[questions[n]].items() if key in inside}
        for n in scope.asked
    ]
    return ndcg_per_query(names, relevant, scores)


def measure(report: Report, loaded: list[EmbeddedSet]) -> None:
    for size in SIZES:
        found: dict[str, list[list[float]]] = {name: [] for name in RANKINGS}
        for whole in loaded:
            scopes = list(cut(whole, size))
            for name, ranking in RANKINGS.items():
                found[name].append([v for s in scopes for v in ndcg(whole, s, ranking(s))])
        for name, by_set in found.items():
            means = [np.mean(values) for values in by_set]
            cells = (f"{mean:.3f}" for mean in [*means, np.mean(means)])
            shown = "whole set" if size is None else f"{size:,}"
            difference = _difference(by_set, found[DEFAULT_NAME])
            report.row("quality", shown, name, *cells, difference)


def _difference(by_set: list[list[float]], default: list[list[float]]) -> str:
    """The mean over the sets of the paired differences to the default, ± 1.96 standard errors."""
    pairs = [np.subtract(v, d) for v, d in zip(by_set, default, strict=True)]
    mean = float(np.mean([p.mean() for p in pairs]))
    error = math.sqrt(sum(p.var() / len(p) for p in pairs)) / len(pairs)
    return f"{mean:+.3f} ± {1.96 * error:.3f}"


def main() -> None:
    embedder = StaticEmbedder()
    loaded = [embedded(data, embedder) for data in sets()]
    report = Report("quality", (__doc__ or "").split("\n\n", 1)[1].strip().replace("\n", " "))
    names = [whole.data.name for whole in loaded]
    report.table(
        *("quality", "nDCG@10", "documents of a scope", "ranking", *names, "mean of the sets"),
        "difference to the default",
    )
    measure(report, loaded)
    report.finish()


if __name__ == "__main__":
    main()
