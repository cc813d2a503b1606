"""How `match` separates what fits from what does not: `python -m bench relevance`.

Each set of `bench quality` is cut into scopes of 50 and 200 documents. Three kinds of questions are
asked in a scope: its own (the hit is the best document that answers it), those of all other sets
(nothing fits, the hit is the best of the scope), and those of the same set whose documents are all
in other scopes (related texts, no answer). The limits of `match` come from the first two sets:
`weak` is the score that 95 % of the questions of other sets stay below, `strong` the one that 95 %
of the questions without their documents stay below, both rounded to a twentieth. The other sets
were not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import typer

from bench.harness import Report
from bench.quality import EmbeddedSet, Matrix, cut, embedded
from bench.retrieval_quality import Scores, anchored, lexical, sets
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.memories.schemas import Match
from memory_api.memories.search.query import MIN_RELEVANCE
from memory_api.text.terms import document_weights, query_terms

CALIBRATION = ("en-apibench", "en-lessons-hotpot")
SIZES = (50, 200)
MAX_SCOPES, MAX_QUESTIONS = 12, 60
KINDS = ("its own", "of other sets", "without their documents")


@dataclass(frozen=True)
class Scope:
    documents: Sequence[str]
    vectors: Matrix

    def ask(self, asked: EmbeddedSet, places: Sequence[int]) -> Scores:
        """The relevance of each document for each of these questions of a set."""
        questions = list(asked.data.queries.values())
        weights = [document_weights(text) for text in self.documents]
        terms = [query_terms(questions[place]) for place in places]
        dense = (asked.questions[list(places)] @ self.vectors.T).astype(np.float64)
        return anchored(dense, lexical(weights, terms))


def measure(whole: EmbeddedSet, others: Sequence[EmbeddedSet], size: int) -> dict[str, list[float]]:
    """The score of the hit of each question, by kind of question."""
    choose = np.random.default_rng(0)
    keys, texts = list(whole.data.documents), list(whole.data.documents.values())
    questions = list(whole.data.queries)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number, scope in enumerate(cut(whole, size)):
        if number == MAX_SCOPES:
            break
        here = Scope([texts[place] for place in scope.places], whole.documents[scope.places])
        own = scope.asked[:MAX_QUESTIONS]
        for n, row in zip(own, here.ask(whole, own), strict=True):
            relevant = whole.data.relevant[questions[n]]
            right = [row[i] for i, place in enumerate(scope.places) if keys[place] in relevant]
            found["its own"].append(float(max(right)))
        unasked = sorted(set(range(len(questions))) - set(scope.asked))
        some = choose.permutation(unasked)[:MAX_QUESTIONS].tolist()
        if some:
            found["without their documents"] += here.ask(whole, some).max(axis=1).tolist()
        for other in others:
            some = choose.permutation(len(other.data.queries))[:20].tolist()
            found["of other sets"] += here.ask(other, some).max(axis=1).tolist()
    return found


def main() -> None:
    report = Report("relevance", (__doc__ or "").split("\n\n", 1)[1].strip().replace("\n", " "))
    report.table(
        *("relevance", "Match of the hit", "set", "used for the limits", "documents", "questions"),
        *("asked", "strong", "weak", "none", "median score"),
    )
    report.table("limits", "Limits that the calibration sets suggest", "match", "score", "in use")
    embedder = StaticEmbedder()
    loaded = [embedded(data, embedder) for data in sets()]
    calibration: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for whole in loaded:
        is_used = whole.data.name in CALIBRATION
        for size in SIZES:
            found = measure(whole, [each for each in loaded if each is not whole], size)
            for kind, values in found.items():
                if is_used:
                    calibration[kind] += values
                if not values:
                    continue
                strong = np.mean([v >= MIN_RELEVANCE["strong"] for v in values])
                fits = np.mean([v >= MIN_RELEVANCE["weak"] for v in values])
                report.row(
                    *("relevance", whole.data.name, "yes" if is_used else "no", size, kind),
                    *(len(values), f"{strong:.1%}", f"{fits - strong:.1%}", f"{1 - fits:.1%}"),
                    f"{np.median(values):.2f}",
                )
    suggested: dict[Match, str] = {"weak": "of other sets", "strong": "without their documents"}
    for match, kind in suggested.items():
        limit = np.quantile(calibration[kind], 0.95)
        report.row("limits", match, f"{limit:.3f}", f"{MIN_RELEVANCE[match]:.2f}")
    report.finish()


if __name__ == "__main__":
    typer.run(main)
