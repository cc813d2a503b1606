"""Detects text that was copied from a served bullet. Such a text is a use of the bullet and not a
new lesson.

A copy may omit words and change their order, but adds no new ones. So the score is the share of the
text's words that were served, in any order. A text with an additional name, number or negation is
not a copy.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memory_api.text.caching import cache_short_texts

MIN_REUSE_SCORE = 0.95
"""Chosen from the curve in docs/decisions/text-reuse.md."""
MIN_COVERED_SHARE = 0.35
"""Minimum share of the served text's words that a copy has. A few common words are no copy."""
MIN_DISTINCTIVE_WORDS = 3
"""With fewer distinctive words, only an exact copy is detected."""

_IDEOGRAM = "\u3005\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
_KATAKANA = "\u30a1-\u30fa\u30fc"
_HIRAGANA = "\u3041-\u3096"
_WORD = re.compile(
    rf"[{_IDEOGRAM}{_KATAKANA}]|[^\W{_IDEOGRAM}{_KATAKANA}{_HIRAGANA}]+(?:['’][a-z]+)?"
)
_NEGATION = re.compile(
    r"\b(?:not|never|avoid(?:ing)?|cannot|without)\b|n['’]t\b|ません|せず|ずに|(?<=[かさたなまらわ])ない"
)
_NEGATION_WORD = "\0not"
_MAX_SHORT_WORD_LENGTH = 3


@dataclass(frozen=True)
class ReusedText:
    """The bullet that a text was copied from. `score` is the share of the text's words that were
    served, 0 to 1. `is_exact` means equal except for case, width and spaces.
    """

    key: str
    score: float
    is_exact: bool = False


def find_reused_text(text: str, served: Mapping[str, str]) -> ReusedText | None:
    """Find the served text, by bullet key, that `text` was most likely copied from. None if the
    text is new.
    """
    folded = _fold(text)
    for key, other in served.items():
        if folded and folded == _fold(other):
            return ReusedText(key, 1.0, is_exact=True)
    words = distinctive_words(text)
    best: ReusedText | None = None
    for key, other in served.items():
        score = reuse_score(words, distinctive_words(other))
        if score >= MIN_REUSE_SCORE and (best is None or score > best.score):
            best = ReusedText(key, score)
    return best


def reuse_score(words: Counter[str], served: Counter[str]) -> float:
    """The share of `words` that were served, 0 to 1.

    0 if there are too few words, if they are too small a part of the served text, or if they
    contain a name, number or negation that was not served.
    """
    word_count, served_count = words.total(), served.total()
    if word_count < MIN_DISTINCTIVE_WORDS or not served_count:
        return 0.0
    shared_count = sum(min(words[word], served[word]) for word in words.keys() & served.keys())
    if shared_count < MIN_COVERED_SHARE * served_count:
        return 0.0
    if any(_changes_meaning(word) for word in words.keys() - served.keys()):
        return 0.0
    return shared_count / word_count


def _changes_meaning(word: str) -> bool:
    """Whether a word is a name, a number, an ideogram or katakana, or a negation."""
    return word == _NEGATION_WORD or not word.isascii() or bool(re.search(r"[_\d]", word))


@cache_short_texts
def distinctive_words(text: str) -> Counter[str]:
    """Count the words of a text without short words and hiragana.

    Ideograms and katakana are counted one by one, because a copy that omits a word joins its
    neighbors.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    counts = Counter(
        word
        for word in _WORD.findall(folded)
        if len(word) > _MAX_SHORT_WORD_LENGTH or not word.isascii() or re.search(r"[_\d]", word)
    )
    if _NEGATION.search(folded):
        counts[_NEGATION_WORD] = 1
    return counts


@cache_short_texts
def _fold(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
