"""How `match` separates what fits from what does not: `python -m bench relevance`.

Each set of `bench quality` is cut into scopes of 50 and 200 documents. Three kinds of questions are
asked in a scope: its own (the hit is the best document that answers it), those of all other sets
(nothing fits, the hit is the best of the scope), and those of the same set whose documents are all
in other scopes (related texts, no answer). The limits of `match` come from the first two sets:
`weak` is the score that 95 % of the questions of other sets stay below, `strong` the one that 95 %
of the questions without their documents stay below, both rounded to a twentieth. The other sets
were not used. The last table is what `min_match` of a render does in scopes of 200 documents, which
do not fit a block of 2,000 tokens: the best that fit, without those below the limit. `found`: of
the scope's own questions, those with a document that answers them in the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import typer

from bench.harness import Report
from bench.quality import EmbeddedSet, Matrix, cut, embedded
from bench.retrieval_quality import Scores, anchored, lexical, sets
from memory_api.embeddings.providers.static import StaticEmbedder
from memory_api.memories.schemas import Match
from memory_api.memories.search.query import MIN_RELEVANCE
from memory_api.text.terms import document_weights, estimate_tokens, query_terms

CALIBRATION = ("en-apibench", "en-lessons-hotpot")
SIZES = (50, 200)
MAX_SCOPES, MAX_QUESTIONS = 12, 60
BLOCK_TOKENS, BLOCK_SCOPE = 2_000, 200
BULLET_TOKENS = 10
"""Of the key and the line of a bullet."""
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


def measure_blocks(
    report: Report, whole: EmbeddedSet, others: Sequence[EmbeddedSet], limits: Mapping[str, float]
) -> None:
    """A row for each limit: blocks for the questions of the set, and for those of other sets."""
    choose = np.random.default_rng(0)
    keys, texts = list(whole.data.documents), list(whole.data.documents.values())
    questions = list(whole.data.queries)
    own: dict[str, list[tuple[bool, int]]] = {name: [] for name in limits}
    foreign: dict[str, list[int]] = {name: [] for name in limits}
    for scope in islice(cut(whole, BLOCK_SCOPE), MAX_SCOPES):
        documents = [texts[place] for place in scope.places]
        sizes = [estimate_tokens(text) + BULLET_TOKENS for text in documents]
        if sum(sizes) <= BLOCK_TOKENS:
            continue
        here = Scope(documents, whole.documents[scope.places])
        asked = scope.asked[:MAX_QUESTIONS]
        for n, row in zip(asked, here.ask(whole, asked), strict=True):
            relevant = whole.data.relevant[questions[n]]
            for name, limit in limits.items():
                block = fill_block(row, sizes, limit)
                is_found = any(keys[scope.places[i]] in relevant for i in block)
                own[name].append((is_found, sum(sizes[i] for i in block)))
        for other in others:
            some = choose.permutation(len(other.data.queries))[:20].tolist()
            for row in here.ask(other, some):
                for name, limit in limits.items():
                    foreign[name].append(sum(sizes[i] for i in fill_block(row, sizes, limit)))
    for name in limits:
        found, tokens = np.mean(own[name], axis=0)
        cells = (f"{found:.1%}", f"{tokens:.0f}", f"{np.mean(foreign[name]):.0f}")
        empty = np.mean([tokens == 0 for tokens in foreign[name]])
        report.row("blocks", whole.data.name, name, len(own[name]), *cells, f"{empty:.1%}")


def fill_block(row: Scores, sizes: Sequence[int], limit: float) -> list[int]:
    """The best documents that fit the tokens of a block."""
    left, block = BLOCK_TOKENS, list[int]()
    for i in np.argsort(-row, kind="stable").tolist():
        if row[i] >= limit and sizes[i] <= left:
            left -= sizes[i]
            block.append(i)
    return block


def main() -> None:
    report = Report("relevance", (__doc__ or "").split("\n\n", 1)[1].strip().replace("\n", " "))
    report.table(
        *("relevance", "Match of the hit", "set", "used for the limits", "documents", "questions"),
        *("asked", "strong", "weak", "none", "median score"),
    )
    report.table("limits", "Limits that the calibration sets suggest", "match", "score", "in use")
    columns = ("set", "min_match", "questions", "found", "tokens", "tokens for other sets")
    report.table("blocks", "Blocks of 2,000 tokens", *columns, "empty for other sets")
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
        measure_blocks(report, whole, [each for each in loaded if each is not whole], MIN_RELEVANCE)
    suggested: dict[Match, str] = {"weak": "of other sets", "strong": "without their documents"}
    for match, kind in suggested.items():
        limit = np.quantile(calibration[kind], 0.95)
        report.row("limits", match, f"{limit:.3f}", f"{MIN_RELEVANCE[match]:.2f}")
    report.finish()


if __name__ == "__main__":
    typer.run(main)
