"""Text that came from the playbook, recognised when a trace brings it back: such a text is a use of
its bullet and never a new lesson. Pure.

Who repeats a text leaves words out and turns their order round, but brings no new ones. So what is
measured is how much of the text was served (`score`, any order), and a text with a name, a number
or a negation that the served one does not have says something else, however alike the rest.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

LEAST_SCORE = 0.95
"""From the curve in docs/decisions/served-text.md."""
LEAST_SHARE = 0.35
"""Of the served text's words: a few words that it has too are not the text."""
FEWEST = 3
"""Telling words below which a text is recognised only word for word."""
REMEMBERED = 4096
"""Texts read once while several are held beside them."""

_IDEOGRAM = "\u3005\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff"
_KATAKANA = "\u30a1-\u30fa\u30fc"
_HIRAGANA = "\u3041-\u3096"
_WORD = re.compile(
    rf"[{_IDEOGRAM}{_KATAKANA}]|[^\W{_IDEOGRAM}{_KATAKANA}{_HIRAGANA}]+(?:['’][a-z]+)?"
)
_NOT = re.compile(
    r"\b(?:not|never|avoid(?:ing)?|cannot|without)\b|n['’]t\b|ません|せず|ずに|(?<=[かさたなまらわ])ない"
)
_NEGATION = "\0not"
_SHORT = 3


@dataclass(frozen=True)
class Match:
    """The bullet a text came from. `score` is the share of the text that was served, 0..1; `exact`
    when it is the served text word for word.
    """

    key: str
    score: float
    exact: bool = False


def recognise(text: str, served: Mapping[str, str]) -> Match | None:
    """The served text (by its key) that `text` repeats, the best match; None when it is new."""
    said = _folded(text)
    for key, other in served.items():
        if said and said == _folded(other):
            return Match(key, 1.0, exact=True)
    words = _words(text)
    found: Match | None = None
    for key, other in served.items():
        score = repeats(words, _words(other))
        if score >= LEAST_SCORE and (found is None or score > found.score):
            found = Match(key, score)
    return found


def resemblance(text: str, served: str) -> float:
    """The score of a text beside one served text, 0..1; 0 where it cannot be a repetition."""
    return repeats(_words(text), _words(served))


def repeats(words: Counter[str], served: Counter[str]) -> float:
    """The share of `words` that were served; 0 when they are few, too small a part of what was
    served, or hold a telling word that was not.
    """
    many, all_served = words.total(), served.total()
    if many < FEWEST or not all_served:
        return 0.0
    if any(_tells(word) for word in words.keys() - served.keys()):
        return 0.0
    shared = (words & served).total()
    return shared / many if shared >= LEAST_SHARE * all_served else 0.0


def _tells(word: str) -> bool:
    """A name, a number, a character that carries meaning, a negation."""
    return word == _NEGATION or not word.isascii() or bool(re.search(r"[_\d]", word))


@lru_cache(maxsize=REMEMBERED)
def _words(text: str) -> Counter[str]:
    """The telling words with how often they occur; ideograms and katakana one by one, because what
    is left out joins their neighbours. Short words and hiragana only hold a sentence together.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    counts = Counter(
        word
        for word in _WORD.findall(folded)
        if len(word) > _SHORT or not word.isascii() or re.search(r"[_\d]", word)
    )
    if _NOT.search(folded):
        counts[_NEGATION] = 1
    return counts


@lru_cache(maxsize=REMEMBERED)
def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
