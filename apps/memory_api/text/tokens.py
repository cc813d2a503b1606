"""Text to BM25 terms, for documents and queries alike: any language, any string, linear time.

A document stores `document_weights`, a query asks with `query_terms`; the database sums their
products with idf = ln(1 + (N − df + .5) / (df + .5)), N and df counted in the scope. The choices
are measured in docs/decisions/tokeniser.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from math import sqrt
from typing import Final

from apps.memory_api.text.scripts import (
    MAX_WORD,
    fold,
    humps,
    is_grammar,
    ngrams,
    normalise,
    segments,
    stem,
)

TOKENIZER: Final = "hansei-terms/1"
"""Name and version, stored with rows. A change of any term or weight needs a new version, and the
rows tokenised again."""

K1: Final = 1.2
B: Final = 0.75
AVERAGE_LENGTH: Final = 32.0
"""Length in words that a document is compared with: a constant, so that a weight stays true after
it was written."""
MAX_QUERY_TERMS: Final = 64
"""Distinct terms of a query that are looked up; see `query_terms`."""
TERM_IDS: Final = 1_000_000_000
"""Ids are below this: they fit PostgreSQL's int4 and a sparsevec's largest dimension."""

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with do does did have has had from about
i you he she we me my your his her our its
what when where who which how why
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""English function and question words, never indexed."""

_REMEMBERED: Final = 64
"""Names up to this many characters are kept in a cache."""


def terms(text: str) -> list[str]:
    """Terms in the order of the text, as often as they occur."""
    return [term for term, _ in _sized_terms(text)]


def term_id(term: str) -> int:
    """Stable id in [0, 1e9). Two given terms share one with a chance of 1e-9; counts then add."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "big") % TERM_IDS


def document_weights(text: str) -> dict[int, float]:
    """Term id → tf (k1 + 1) / (tf + k1 (1 − b + b · length / 32)), in (0, 2.2); length in words."""
    counts: Counter[str] = Counter()
    length = 0.0
    for term, size in _sized_terms(text):
        counts[term] += 1
        length += size
    norm = K1 * (1 - B + B * length / AVERAGE_LENGTH)
    return {i: tf * (K1 + 1) / (tf + norm) for i, tf in _by_id(counts).items()}


def query_terms(text: str) -> dict[int, float]:
    """Term id → √(times it occurs): said four times counts double, so echoes do not rule.

    Of more than 64 distinct terms the most telling are kept, so that 10 kB cost no more than 64
    words: highest √count × length first, all-hiragana terms last. Ties fall by the hash, which
    samples the whole text and not its beginning.
    """
    counts = Counter(terms(text))
    ranked = sorted(
        counts, key=lambda term: (is_grammar(term), -sqrt(counts[term]) * len(term), term_id(term))
    )
    kept = Counter({term: counts[term] for term in ranked[:MAX_QUERY_TERMS]})
    return {i: sqrt(count) for i, count in _by_id(kept).items()}


def _by_id(counts: Counter[str]) -> Counter[int]:
    ids: Counter[int] = Counter()
    for term, count in counts.items():
        ids[term_id(term)] += count
    return ids


def _sized_terms(text: str) -> Iterator[tuple[str, float]]:
    """Each term with its share of a word, the unit of a document's length: an n-gram is 1/n."""
    for kind, run in segments(normalise(text)):
        if kind == "name":
            yield from _name(run) if len(run) <= _REMEMBERED else _name_terms(run)
        else:
            grams, n = ngrams(kind, run)
            for gram in grams:
                yield gram, 1 / n


@lru_cache(maxsize=1 << 15)
def _name(run: str) -> tuple[tuple[str, float], ...]:
    """`_name_terms`, remembered: text repeats its words, and this makes it several times faster."""
    return tuple(_name_terms(run))


def _name_terms(run: str) -> Iterator[tuple[str, float]]:
    """A name by its parts and by every level of the whole, however it is spelt.

    `AutoModel.from_pretrained` is found by auto, model, pretrained, AutoModel, from_pretrained,
    FromPretrained, from-pretrained, and in full. The wholes add no length: their parts did.
    """
    whole: list[str] = []
    members = run.split(".")
    for member in members:
        words = member.replace("-", "_").split("_")
        parts = [part for word in words for part in map(fold, humps(word)) if part]
        for part in parts:
            if part not in STOP_WORDS:
                yield stem(part), 1.0
        yield from _compound(parts)
        whole += parts
    if len(members) > 1:
        yield from _compound(whole)


def _compound(parts: list[str]) -> Iterator[tuple[str, float]]:
    """The parts as one term. Numbers keep a dot between them: 3.5 is not 35."""
    if len(parts) > 1 and sum(map(len, parts)) <= MAX_WORD:
        separator = "." if all(part.isdigit() for part in parts) else ""
        yield stem(separator.join(parts)), 0.0
