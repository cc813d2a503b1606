"""Could rankings with more evidence find more? `python -m bench quality_leads`.

Tries two further scores, which the service does not compute, on the random scopes of `bench
quality`. `characters`: cosine of TF-IDF vectors of the 3- to 5-grams of characters. `tokens`: for
each token of the question the most similar token of the document, by the vectors of the bundled
model ("MaxSim", Khattab and Zaharia, SIGIR 2020), weighted by the length of its vector. Each is
divided by the best of its question and added to BM25. The weights are chosen on the other four sets
and applied to the fifth, so that no set is scored with weights that were chosen on it. They are in
parentheses: characters, tokens.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from bench.quality import EmbeddedSet, Matrix, ScopeScores, cut, embedded, ndcg
from bench.report import Report
from bench.retrieval_quality import Scores, anchored
from bench.search_quality import sets
from memory_api.embeddings.providers.static import MODEL_DIRECTORY, StaticEmbedder

SIZES = (50, 200, 1_000, None)
GRAMS = (3, 4, 5)
DIMENSIONS = 1 << 15
"""Of the hashed vectors of n-grams."""
MAX_CHARACTERS = 3_000
LEAST_COSINE = 0.45
"""Tokens that are less similar do not match."""
WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4)
Weights = tuple[float, float]
"""Of `characters` and of `tokens`; the rest is the weight of BM25."""


class TokenVectors:
    """The token vectors of the bundled model."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer.from_file(str(MODEL_DIRECTORY / "tokenizer.json"))
        vectors = load_file(MODEL_DIRECTORY / "model.safetensors")["embeddings"]
        self.lengths = np.linalg.norm(vectors.astype(np.float32), axis=1)
        self.units = vectors / np.maximum(self.lengths, 1e-9)[:, None]

    def token_ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text[:MAX_CHARACTERS], add_special_tokens=False).ids


def token_scores(whole: EmbeddedSet, vectors: TokenVectors) -> Matrix:
    """Shape (questions, documents)."""
    questions = [vectors.token_ids(text) for text in whole.data.queries.values()]
    asked = sorted({token for tokens in questions for token in tokens})
    weights = np.zeros((len(questions), len(asked)), np.float32)
    for row, tokens in zip(weights, questions, strict=True):
        row[np.searchsorted(asked, tokens)] = vectors.lengths[tokens]
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    columns: list[NDArray[np.float32]] = []
    for text in whole.data.documents.values():
        tokens = sorted(set(vectors.token_ids(text)))
        best = (vectors.units[asked] @ vectors.units[tokens].T).max(axis=1, initial=0.0)
        columns.append(weights @ np.where(best > LEAST_COSINE, best, 0))
    return np.stack(columns, axis=1)


def character_scores(whole: EmbeddedSet) -> Matrix:
    """Shape (questions, documents)."""

    def counted(texts: Sequence[str]) -> Matrix:
        out = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in zip(out, texts, strict=True):
            for gram, count in Counter(_grams(text)).items():
                row[zlib.crc32(gram.encode()) % DIMENSIONS] += 1 + math.log(count)
        return out

    documents = counted(list(whole.data.documents.values()))
    questions = counted(list(whole.data.queries.values()))
    idf = np.log((1 + len(documents)) / (1 + (documents > 0).sum(axis=0))) + 1
    for rows in (documents, questions):
        rows *= idf
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return questions @ documents.T


def _grams(text: str) -> list[str]:
    words = [f" {word} " for word in text.lower().split()]
    return [w[i : i + n] for w in words for n in GRAMS for i in range(len(w) - n + 1)]


def over_best(scores: Scores) -> Scores:
    best = scores.max(axis=1, keepdims=True)
    return np.maximum(scores, 0) / np.where(best > 0, best, 1)


def rankings(scope: ScopeScores, characters: Matrix, tokens: Matrix) -> dict[Weights, Scores]:
    inside = np.ix_(scope.asked, scope.places)
    words = over_best(scope.bm25)
    more = (
        over_best(characters[inside].astype(np.float64)),
        over_best(tokens[inside].astype(np.float64)),
    )
    return {
        (a, b): (1 - a - b) * words + a * more[0] + b * more[1] for a in WEIGHTS for b in WEIGHTS
    }


def held_out(differences: Mapping[Weights, list[NDArray[np.float64]]], place: int) -> Weights:
    """The weights that are best on the other sets."""
    return max(
        differences,
        key=lambda w: sum(d.mean() for n, d in enumerate(differences[w]) if n != place),
    )


def main() -> None:
    embedder, vectors = StaticEmbedder(), TokenVectors()
    loaded = [embedded(data, embedder) for data in sets()]
    report = Report("quality_leads", (__doc__ or "").split("\n\n", 1)[1].strip().replace("\n", " "))
    report.table(
        *("leads", "nDCG@10: difference to the default, weights from the other sets"),
        *("documents of a scope", *(whole.data.name for whole in loaded), "mean of the sets"),
    )
    more = [(character_scores(whole), token_scores(whole, vectors)) for whole in loaded]
    for size in SIZES:
        differences: dict[Weights, list[NDArray[np.float64]]] = {}
        for whole, (characters, tokens) in zip(loaded, more, strict=True):
            found: dict[Weights, list[float]] = {}
            default: list[float] = []
            for scope in cut(whole, size):
                default += ndcg(whole, scope, anchored(scope.dense, scope.bm25))
                for weights, scores in rankings(scope, characters, tokens).items():
                    found.setdefault(weights, []).extend(ndcg(whole, scope, scores))
            for weights, values in found.items():
                differences.setdefault(weights, []).append(np.subtract(values, default))
        cells: list[str] = []
        chosen: list[NDArray[np.float64]] = []
        for place in range(len(loaded)):
            weights = held_out(differences, place)
            chosen.append(differences[weights][place])
            cells.append(f"{chosen[-1].mean():+.3f} ({weights[0]:.1f}, {weights[1]:.1f})")
        mean = float(np.mean([d.mean() for d in chosen]))
        error = 1.96 * math.sqrt(sum(d.var() / len(d) for d in chosen)) / len(chosen)
        shown = "whole set" if size is None else f"{size:,}"
        report.row("leads", shown, *cells, f"{mean:+.3f} ± {error:.3f}")
    report.finish()


if __name__ == "__main__":
    main()
