"""Vectors for scripts the bundled model cannot read: likeness of spelling, not of meaning.

A text becomes units (character pairs of CJK and Hangul, words and character trigrams of other
scripts), every unit a fixed pseudo-random vector of ±1 taken from the bits of its BLAKE2b hash.
Texts that share units point the same way; others are nearly at right angles (cosine 0 ± 1/√d).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np
import regex

from apps.memory_api.embeddings.port import Vectors
from apps.memory_api.embeddings.vectors import unit_rows

_PAIRED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Yi}ー"
_LETTERS = r"[\p{L}\p{M}\p{N}]--[\p{Latin}0-9]"
_FOREIGN = regex.compile(
    rf"(?P<paired>[{_PAIRED}]+)|(?P<word>[[{_LETTERS}]--[{_PAIRED}]]+)", regex.V1
)
_LATIN = regex.compile(r"[\p{Latin}0-9][\p{Latin}\p{Mn}0-9]*")
_HIRAGANA = regex.compile(r"[\p{Hiragana}ー]+")
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp", "Zs"))
_GRAMMAR_WEIGHT: Final = 0.3
"""All-hiragana pairs are mostly endings and particles: they count less."""


def latin_words(text: str) -> list[str]:
    """The words a model of English can read something in."""
    return _LATIN.findall(text)


def foreign_units(text: str) -> Counter[str]:
    """Units of NFKC text outside the Latin script; empty when it is all Latin."""
    units: Counter[str] = Counter()
    if text.isascii():
        return units
    for match in _FOREIGN.finditer(text.casefold()):
        run = match[0]
        if match.lastgroup == "paired":
            units.update(run[i : i + 2] for i in range(max(1, len(run) - 1)))
        elif (
            unicodedata.category(run[0])[0] != "M"
        ):  # a mark without its letter is an accent of Latin
            units[run] += 1
            framed = f"#{run}#"
            units.update(framed[i : i + 3] for i in range(len(run)))
    return units


def any_units(text: str) -> Counter[str]:
    """Units of last resort, for text without a readable word (emoji): its visible characters."""
    return Counter(c for c in text.casefold() if unicodedata.category(c) not in _INVISIBLE)


def hashed_vector(units: Counter[str], dimensions: int) -> Vectors:
    """Shape (dimensions,), unit length: the units' vectors summed with √count; zero without units.

    `dimensions` is a multiple of 8, at most 512.
    """
    if not units:
        return np.zeros(dimensions, np.float32)
    bits = np.frombuffer(b"".join(_digest(unit, dimensions // 8) for unit in units), np.uint8)
    signs = np.unpackbits(bits).reshape(len(units), dimensions).astype(np.float32) * 2 - 1
    weights = np.sqrt(np.fromiter(units.values(), np.float32, len(units)))
    grammar = np.fromiter(map(_is_grammar, units), np.bool_, len(units))
    weights[grammar] *= _GRAMMAR_WEIGHT
    return unit_rows((weights @ signs)[np.newaxis])[0]


def _is_grammar(unit: str) -> bool:
    return _HIRAGANA.fullmatch(unit) is not None


@lru_cache(maxsize=1 << 14)
def _digest(unit: str, size: int) -> bytes:
    return blake2b(unit.encode(), digest_size=size).digest()
