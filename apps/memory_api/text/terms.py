"""The tokenizer: BM25 terms and weights of documents and queries, for any language, in linear time.

Documents are stored with `document_weights` and searched with `query_terms`. The database sums the
products of both with idf = ln(1 + (N − df + .5) / (df + .5)), where N and df are counted within the
scope. docs/decisions/tokenizer.md has the measurements. Also estimates tokens of language models.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from math import sqrt
from typing import Final

from memory_api.text.segmentation import (
    MAX_WORD_LENGTH,
    fold_word,
    is_function_word,
    ngrams,
    normalize,
    segments,
    split_camel_case,
    stem,
)

TOKENIZER_VERSION: Final = "hansei-terms/1"
"""Stored with rows. Change the version if any term or weight changes; the rows are then tokenized
again.
"""

K1: Final = 1.2
B: Final = 0.75
AVERAGE_DOCUMENT_WORDS: Final = 32.0
"""The average document length of BM25, in words. A constant, so that stored weights stay valid."""
MAX_QUERY_TERMS: Final = 64
"""Maximum distinct terms of a query; see `query_terms`."""
TERM_ID_COUNT: Final = 1_000_000_000
"""Term IDs are lower. They fit PostgreSQL's int4 and the dimensions of a sparsevec."""

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there
these they this to was will with do does did have has had from about
i you he she we me my your his her our its
what when where who which how why
"""
STOP_WORDS: Final = frozenset(_STOP_WORDS.split())
"""English function and question words. They are not indexed."""

_MAX_CACHED_NAME_LENGTH: Final = 64
_ASCII = re.compile("[\x00-\x7f]+")
_NARROW = re.compile("[\x00-\u2e7f]+")


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text in a language model, a little too high: 1/4 per ASCII
    character, 1 per CJK character or emoji, 1/2 per other character.
    """
    if text.isascii():
        return -(-len(text) // 4)
    others = _ASCII.sub("", text)
    wide_count = len(_NARROW.sub("", others))
    quarters = len(text) + len(others) + 2 * wide_count
    return -(-quarters // 4)


def tokenize(text: str) -> list[str]:
    """The terms in the order of the text, with repetitions."""
    return [term for term, _ in _terms_with_lengths(text)]


def term_id(term: str) -> int:
    """A stable ID in [0, 1e9). Two terms share an ID with a probability of 1e-9; their counts are
    then added.
    """
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "big") % TERM_ID_COUNT


def document_weights(text: str) -> dict[int, float]:
    """Term ID → tf (k1 + 1) / (tf + k1 (1 − b + b · length / 32)), in (0, 2.2); length in words."""
    counts: Counter[str] = Counter()
    document_words = 0.0
    for term, words in _terms_with_lengths(text):
        counts[term] += 1
        document_words += words
    norm = K1 * (1 - B + B * document_words / AVERAGE_DOCUMENT_WORDS)
    return {i: tf * (K1 + 1) / (tf + norm) for i, tf in _count_by_id(counts).items()}


def query_terms(text: str) -> dict[int, float]:
    """Term ID → √count, so that repeated words do not dominate a query.

    Uses at most 64 distinct terms, which bounds the cost of a long query: those with the highest
    √count × length, with all-hiragana terms last. The hash decides ties, so that the terms come
    from the whole text and not only from its start.
    """
    counts = Counter(tokenize(text))
    if len(counts) > MAX_QUERY_TERMS:
        ranked = sorted(
            counts,
            key=lambda term: (
                is_function_word(term),
                -sqrt(counts[term]) * len(term),
                term_id(term),
            ),
        )
        counts = Counter({term: counts[term] for term in ranked[:MAX_QUERY_TERMS]})
    return {i: sqrt(count) for i, count in _count_by_id(counts).items()}


def content_terms(text: str) -> set[int]:
    """The term IDs of a query without all-hiragana terms, which are mostly endings; all terms if
    there are no others. At most 64.
    """
    terms = query_terms(text).keys()
    functional = {term_id(term) for term in set(tokenize(text)) if is_function_word(term)}
    return set(terms - functional) or set(terms)


def _count_by_id(counts: Counter[str]) -> Counter[int]:
    ids: Counter[int] = Counter()
    for term, count in counts.items():
        ids[term_id(term)] += count
    return ids


def _terms_with_lengths(text: str) -> Iterator[tuple[str, float]]:
    """Each term with its length in words: 1/n for an n-gram."""
    for kind, run in segments(normalize(text)):
        if kind == "name":
            is_cached = len(run) <= _MAX_CACHED_NAME_LENGTH
            yield from _cached_name_terms(run) if is_cached else _name_terms(run)
        else:
            grams, n = ngrams(kind, run)
            for gram in grams:
                yield gram, 1 / n


@lru_cache(maxsize=1 << 15)
def _cached_name_terms(run: str) -> tuple[tuple[str, float], ...]:
    return tuple(_name_terms(run))


def _name_terms(run: str) -> Iterator[tuple[str, float]]:
    """The terms of a name: its parts, and the compounds of the parts at each level.

    So `AutoModel.from_pretrained` is found with auto, model, pretrained, AutoModel,
    from_pretrained, FromPretrained, from-pretrained, and the full name. Compounds have length 0,
    because the length of their parts is counted.
    """
    all_parts: list[str] = []
    members = run.split(".")
    for member in members:
        words = member.replace("-", "_").split("_")
        parts = [part for word in words for part in map(fold_word, split_camel_case(word)) if part]
        for part in parts:
            if part not in STOP_WORDS:
                yield stem(part), 1.0
        yield from _compound_term(parts)
        all_parts += parts
    if len(members) > 1:
        yield from _compound_term(all_parts)


def _compound_term(parts: list[str]) -> Iterator[tuple[str, float]]:
    """Several parts as one term. Numbers keep the dot: 3.5 is not 35."""
    if len(parts) > 1 and sum(map(len, parts)) <= MAX_WORD_LENGTH:
        separator = "." if all(part.isdigit() for part in parts) else ""
        yield stem(separator.join(parts)), 0.0
