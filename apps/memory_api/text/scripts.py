"""What a run of text is made of: words, names, and the scripts that write no spaces. Pure.

The steps, each of which keeps the next one simple: `normalise` (one spelling per character),
`segments` (runs of one kind), then `ngrams` for scripts without spaces, `humps`, `fold` and `stem`
for everything else.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, Protocol, cast

import regex
import Stemmer

MAX_WORD: Final = 128
"""Characters kept of one word; longer runs are blobs, and their beginning finds them again."""
MAX_HUMPS: Final = 12
"""A camelCase run with more humps than this is a key or base64, not a name, and stays whole."""

Kind = Literal["paired", "clustered", "name"]
"""How a run is cut into terms."""

_PAIRED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Yi}ー"
_CLUSTERED = r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
# ASCII is named first because the engine tries it first: three times faster on English.
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
_HUMP = regex.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_FOLDED = regex.compile(r"[\p{Latin}\p{Arabic}\p{Hebrew}]")
_TATWEEL = "\u0640"
_HIRAGANA = regex.compile(r"[\p{Hiragana}ー]+")


class _Stemmer(Protocol):
    def stemWord(self, word: str, /) -> str: ...


def _stemmer(algorithm: str) -> _Stemmer:
    """Without its own cache (0), which threads may not share; `stem` below has one they may."""
    made = Stemmer.Stemmer(algorithm, 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return cast(_Stemmer, made)


# One stemmer per script, not per language: the language of a bullet is not known, its script is.
_ENGLISH: Final = _stemmer("english")
_STEMMERS: Final = tuple(
    (regex.compile(rf"\p{{{script}}}+"), _stemmer(algorithm))
    for script, algorithm in (
        ("Cyrillic", "russian"),
        ("Arabic", "arabic"),
        ("Greek", "greek"),
        ("Devanagari", "hindi"),
        ("Tamil", "tamil"),
        ("Armenian", "armenian"),
    )
)


def normalise(text: str) -> str:
    """NFKC, without characters that show nothing, any script's decimal digits as ASCII ones.

    Case is kept. Runs of more than 30 combining marks (Unicode's stream-safe bound) are cut first,
    because putting them in order takes quadratic time.
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _MARKS.sub(r"\1", _IGNORED.sub("", text)))
    # The default: `regex` knows digits of a later Unicode than the interpreter may.
    return _DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0], digit[0])), text)


def segments(text: str) -> Iterator[tuple[Kind, str]]:
    """The searchable runs of normalised text, in order, without spaces, punctuation and symbols.

    A name keeps its inner `_`, `.` and `-` (`get_user`, `os.path`, `gpt-4o`). The tail of an
    English contraction or possessive is dropped (`user's` → `user`).
    """
    for match in _SEGMENT.finditer(text):
        kind = cast(Kind, match.lastgroup)
        yield kind, match[kind]


def ngrams(kind: Kind, run: str) -> tuple[list[str], int]:
    """Overlapping n-grams of a run without spaces, and n. A run shorter than n is one term.

    Two characters of CJK and Hangul; three grapheme clusters of Thai and Lao (about four letters);
    two of Khmer and Burmese, whose clusters are longer.
    """
    if kind == "paired":
        units, n = list(run), 2
    else:
        units = [cluster[:MAX_WORD] for cluster in _CLUSTER.findall(run)]
        n = 3 if _THREE_CLUSTERS.match(run) else 2
    if len(units) < n:
        return ["".join(units)], 1
    return ["".join(units[i : i + n]) for i in range(len(units) - n + 1)], n


def humps(word: str) -> list[str]:
    """The parts of a camelCase word (`getUserID2` → get, User, ID, 2); others stay whole."""
    if not word.isascii() or word.islower() or word.isupper() or len(word) > MAX_WORD:
        return [word]
    parts: list[str] = _HUMP.findall(word)
    return parts if 1 < len(parts) <= MAX_HUMPS else [word]


@lru_cache(maxsize=1 << 15)
def fold(word: str) -> str:
    """One spelling of a word of at most MAX_WORD characters: case folded, and without what writers
    of Latin, Arabic and Hebrew script leave out (accents, vowel points, hamza, tatweel)."""
    word = word.casefold()[:MAX_WORD]
    if word.isascii() or not _FOLDED.match(word):
        return word
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", bare.replace(_TATWEEL, ""))


@lru_cache(maxsize=1 << 15)
def stem(word: str) -> str:
    """The Snowball stem of a folded word, by its script; other scripts stay as they are."""
    if word.isascii():
        return _ENGLISH.stemWord(word)
    for script, stemmer in _STEMMERS:
        if script.fullmatch(word):
            return stemmer.stemWord(word) or word
    return word


def is_grammar(term: str) -> bool:
    """True for all-hiragana terms: mostly endings and particles, which tell little of a topic."""
    return _HIRAGANA.fullmatch(term) is not None
