"""Split text into searchable parts by script.

The steps are `normalize`, `segments` (runs of one kind), and then `ngrams` for scripts without
spaces, or `split_camel_case`, `fold_word` and `stem` for all others.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, Protocol, cast

import regex
import Stemmer

MAX_WORD_LENGTH: Final = 128
"""Maximum characters of a word. A longer run is binary data or similar; it is truncated."""
MAX_CAMEL_CASE_PARTS: Final = 12
"""A camelCase word with more parts is a key or base64 and is not split."""

SegmentKind = Literal["paired", "clustered", "name"]
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


def normalize(text: str) -> str:
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


def segments(text: str) -> Iterator[tuple[SegmentKind, str]]:
    """Split a normalized text into searchable runs, without spaces, punctuation and symbols.

    A name keeps its inner `_`, `.` and `-` (`get_user`, `os.path`, `gpt-4o`). The end of an English
    contraction or possessive is removed (`user's` → `user`).
    """
    for match in _SEGMENT.finditer(text):
        kind = cast(SegmentKind, match.lastgroup)
        yield kind, match[kind]


def ngrams(kind: SegmentKind, run: str) -> tuple[list[str], int]:
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


def split_camel_case(word: str) -> list[str]:
    """Split a camelCase word (`getUserID2` → get, User, ID, 2). Other words are not split."""
    if not word.isascii() or word.islower() or word.isupper() or len(word) > MAX_WORD_LENGTH:
        return [word]
    parts: list[str] = _CAMEL_CASE_PART.findall(word)
    return parts if 1 < len(parts) <= MAX_CAMEL_CASE_PARTS else [word]


@lru_cache(maxsize=1 << 15)
def fold_word(word: str) -> str:
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


def is_function_word(term: str) -> bool:
    """Whether a term is all hiragana: mostly endings and particles, with little meaning."""
    return _HIRAGANA.fullmatch(term) is not None
