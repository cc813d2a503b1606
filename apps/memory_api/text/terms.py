"""The tokenizer: BM25 terms and weights of documents and queries, for any language, in linear time.

Documents are stored with `document_weights` and searched with `query_terms`. The database sums the
products of both with idf = ln(1 + (N − df + .5) / (df + .5)), where N and df are counted within the
scope. docs/decisions/tokenizer.md has the measurements. Also estimates tokens of language models.

A text is normalized and split into runs of one script. Runs without spaces become n-grams; names
are split, folded and stemmed.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from math import sqrt
from typing import Final, Literal, Protocol, cast

import regex
import Stemmer

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
                _is_function_word(term),
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
    functional = {term_id(term) for term in set(tokenize(text)) if _is_function_word(term)}
    return set(terms - functional) or set(terms)


def _count_by_id(counts: Counter[str]) -> Counter[int]:
    ids: Counter[int] = Counter()
    for term, count in counts.items():
        ids[term_id(term)] += count
    return ids


def _terms_with_lengths(text: str) -> Iterator[tuple[str, float]]:
    """Each term with its length in words: 1/n for an n-gram."""
    for kind, run in _segments(_normalize(text)):
        if kind == "name":
            is_cached = len(run) <= _MAX_CACHED_NAME_LENGTH
            yield from _cached_name_terms(run) if is_cached else _name_terms(run)
        else:
            grams, n = _ngrams(kind, run)
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
        parts = [
            part
            for word in words
            for each in _split_camel_case(word)
            if (part := _fold_word(each[:MAX_WORD_LENGTH]))
        ]
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


MAX_WORD_LENGTH: Final = 128
"""Maximum characters of a word. A longer run is binary data or similar; it is truncated."""
_MAX_CAMEL_CASE_PARTS: Final = 12
"""A camelCase word with more parts is a key or base64 and is not split."""

_SegmentKind = Literal["paired", "clustered", "name"]
"""How a run is split into terms: character pairs, n-grams of grapheme clusters, or a name's parts.
"""

_PAIRED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Yi}ー"
_CLUSTERED = r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
# ASCII comes first, because the engine tries alternatives in order: three times faster for English.
_SPACED = rf"[a-zA-Z0-9||[[\p{{L}}\p{{M}}\p{{N}}]--[{_PAIRED}]--{_CLUSTERED}]]"
_SEGMENT = regex.compile(
    rf"(?P<paired>[{_PAIRED}]+)"
    rf"|(?P<clustered>[{_CLUSTERED}&&[\p{{L}}\p{{M}}]]+)"
    rf"|(?P<name>{_SPACED}+(?:[_.\-]+{_SPACED}+){{0,31}})(?:['’](?i:s|t|d|ll|re|ve|m)\b)?",
    regex.V1,
)
_IGNORED = regex.compile(r"[\u00ad\u200d\u2060\ufeff\p{Variation_Selector}]+")
_MARKS = regex.compile(r"(\p{M}{30})\p{M}+")
_DIGIT = regex.compile(r"[\p{Nd}--[0-9]]", regex.V1)
_CLUSTER = regex.compile(r"\X")
_THREE_CLUSTERS = regex.compile(r"[\p{Thai}\p{Lao}]")
_CAMEL_CASE_PART = regex.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FOLDED = regex.compile(r"[\p{Latin}\p{Arabic}\p{Hebrew}]")
_TATWEEL = "\u0640"
_HIRAGANA = regex.compile(r"[\p{Hiragana}ー]+")


class _Stemmer(Protocol):
    def stemWord(self, word: str, /) -> str: ...


def _open_stemmer(algorithm: str) -> _Stemmer:
    """Disables the stemmer's own cache (0), which is not thread-safe. `stem` has a safe one."""
    stemmer = Stemmer.Stemmer(algorithm, 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast(_Stemmer, stemmer)


# One stemmer per script and not per language, because the language of a text is not known.
_ENGLISH_STEMMER: Final = _open_stemmer("english")
_STEMMERS: Final = tuple(
    (regex.compile(rf"\p{{{script}}}+"), _open_stemmer(algorithm))
    for script, algorithm in (
        ("Cyrillic", "russian"),
        ("Arabic", "arabic"),
        ("Greek", "greek"),
        ("Devanagari", "hindi"),
        ("Tamil", "tamil"),
        ("Armenian", "armenian"),
    )
)


def _normalize(text: str) -> str:
    """Convert to NFKC, remove invisible characters, and replace decimal digits of all scripts by
    ASCII digits. Does not change the case.

    First truncates runs of over 30 combining marks (Unicode's stream-safe limit), because sorting
    them takes quadratic time.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _MARKS.sub(r"\1", _IGNORED.sub("", text)))
    # The second argument is the default: `regex` may know digits of a newer Unicode than Python.
    return _DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0], digit[0])), text)


def _segments(text: str) -> Iterator[tuple[_SegmentKind, str]]:
    """Split a normalized text into searchable runs, without spaces, punctuation and symbols.

    A name keeps its inner `_`, `.` and `-` (`get_user`, `os.path`, `gpt-4o`). The end of an English
    contraction or possessive is removed (`user's` → `user`).
    """
    for match in _SEGMENT.finditer(text):
        kind = cast(_SegmentKind, match.lastgroup)
        yield kind, match[kind]


def _ngrams(kind: _SegmentKind, run: str) -> tuple[list[str], int]:
    """Return the overlapping n-grams of a run without spaces, and n. A shorter run is one term.

    n is 2 characters for CJK and Hangul, 3 grapheme clusters (about four letters) for Thai and Lao,
    and 2 for Khmer and Burmese, whose clusters are longer.
    """
    if kind == "paired":
        units, n = list(run), 2
    else:
        units = [cluster[:MAX_WORD_LENGTH] for cluster in _CLUSTER.findall(run)]
        n = 3 if _THREE_CLUSTERS.match(run) else 2
    if len(units) < n:
        return ["".join(units)], 1
    return ["".join(units[i : i + n]) for i in range(len(units) - n + 1)], n


def _split_camel_case(word: str) -> list[str]:
    """Split a camelCase word (`getUserID2` → get, User, ID, 2). Other words are not split."""
    if not word.isascii() or word.islower() or word.isupper() or len(word) > MAX_WORD_LENGTH:
        return [word]
    parts: list[str] = _CAMEL_CASE_PART.findall(word)
    return parts if 1 < len(parts) <= _MAX_CAMEL_CASE_PARTS else [word]


@lru_cache(maxsize=1 << 15)
def _fold_word(word: str) -> str:
    """Case-fold and truncate a word. In Latin, Arabic and Hebrew script, also remove marks that
    writers often omit (accents, vowel points, hamza, tatweel).
    """
    word = word.casefold()[:MAX_WORD_LENGTH]
    if word.isascii() or not _FOLDED.match(word):
        return word
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", bare.replace(_TATWEEL, ""))


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """The Snowball stem of a folded word, by its script. Words in other scripts do not change."""
    if word.isascii():
        return _ENGLISH_STEMMER.stemWord(word)
    for script, stemmer in _STEMMERS:
        if script.fullmatch(word):
            return stemmer.stemWord(word) or word
    return word


def _is_function_word(term: str) -> bool:
    """Whether a term is all hiragana: mostly endings and particles, with little meaning."""
    return _HIRAGANA.fullmatch(term) is not None
