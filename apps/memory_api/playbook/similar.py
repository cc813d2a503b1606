"""How alike two texts are in their wording: candidates for near-duplicates, to be judged with their
embeddings.

Wording finds the lesson that was written twice; it cannot tell "most listened" from "least
listened": `unlike` (unlike.py) reads what differs. The measure (words, and single characters of
CJK, as a multiset; Dice) had the highest rank correlation with human judgements among twelve tried
on 500 Japanese pairs: .67, against .46 to .65 for n-grams of characters or words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

DEFAULT_THRESHOLD = 0.9
CACHED = 4096
"""Texts whose words are kept: the same bullets are compared with one new text after the other."""
_CJK = "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
_UNIT = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_Unit = tuple[str, int]
"""A word and which of its occurrences this is, so that a multiset can be compared as a set."""


@dataclass(frozen=True)
class SimilarPair:
    """Two keys, `first` earlier in the order given. `score` is 0..1; the words are those that only
    one of them has.
    """

    first: str
    second: str
    score: float
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]


def wording_similarity(a: str, b: str) -> float:
    """Twice the words shared over all words, 0..1; order, case, width and punctuation do not count.

    Texts without a word are alike (1) when they are the same text, else not at all (0).
    """
    return _dice(a, _units(a), b, _units(b))


def likeness_once(a: str, b: str) -> float:
    """The same of long texts that nobody asks about again: nothing of them is kept."""
    return _dice(a, _units.__wrapped__(a), b, _units.__wrapped__(b))


def only_words(a: str, b: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that only the first text has (or has more often), and those of the second."""
    first, second = _units(a), _units(b)
    return _words(first - second), _words(second - first)


def contained(a: str, b: str) -> float:
    """The share of the words of `a` that `b` has too, 0..1; 1 when `a` has none."""
    first = _units(a)
    return len(first & _units(b)) / len(first) if first else 1.0


def similar_to(
    text: str, others: Mapping[str, str], threshold: float = DEFAULT_THRESHOLD
) -> list[tuple[str, float]]:
    """The keys of the texts at least this much alike, with their scores, the most alike first."""
    units = _units(text)
    scored = [(key, _dice(text, units, other, _units(other))) for key, other in others.items()]
    return sorted((s for s in scored if s[1] >= threshold), key=lambda s: -s[1])


def near_duplicates(
    texts: Mapping[str, str], threshold: float = DEFAULT_THRESHOLD
) -> list[SimilarPair]:
    """All pairs at least this much alike, the most alike first. `threshold` is above 0, up to 1."""
    if not 0.0 < threshold <= 1.0:
        raise ValueError(f"threshold is above 0 and at most 1, not {threshold}")
    keys = list(texts)
    units = {key: _units(text) for key, text in texts.items()}
    pairs: list[SimilarPair] = []
    for i, j in _candidates([units[key] for key in keys], threshold):
        a, b = keys[i], keys[j]
        score = _dice(texts[a], units[a], texts[b], units[b])
        if score >= threshold:
            only_a, only_b = _words(units[a] - units[b]), _words(units[b] - units[a])
            pairs.append(SimilarPair(a, b, score, only_a, only_b))
    return sorted(pairs, key=lambda pair: -pair.score)


@lru_cache(maxsize=CACHED)
def _units(text: str) -> frozenset[_Unit]:
    counts = Counter(_UNIT.findall(unicodedata.normalize("NFKC", text).casefold()))
    return frozenset((word, n) for word, count in counts.items() for n in range(count))


def _words(units: Iterable[_Unit]) -> tuple[str, ...]:
    return tuple(sorted({word for word, _ in units}))


def _dice(a: str, units_a: frozenset[_Unit], b: str, units_b: frozenset[_Unit]) -> float:
    if not units_a and not units_b:
        return 1.0 if a == b else 0.0
    return 2 * len(units_a & units_b) / (len(units_a) + len(units_b))


def _candidates(sets: list[frozenset[_Unit]], threshold: float) -> Iterator[tuple[int, int]]:
    """Pairs that can reach the threshold, without comparing all with all.

    Two sets that alike share at least threshold / (2 - threshold) of either, hence one of the
    rarest units of each; only the sets that meet in such a unit are compared.
    """
    rarity = Counter(unit for units in sets for unit in units)
    holders: dict[_Unit, list[int]] = {}
    wordless: list[int] = []
    for i, units in enumerate(sets):
        # A hair below the bound: one comparison too many is cheaper than a pair lost to rounding.
        needed = math.ceil(len(units) * threshold / (2 - threshold) - 1e-9)
        rarest = sorted(units, key=lambda unit: (rarity[unit], unit))[: len(units) - needed + 1]
        met = {j for unit in rarest for j in holders.get(unit, ())} if units else set(wordless)
        yield from ((j, i) for j in sorted(met))
        for unit in rarest:
            holders.setdefault(unit, []).append(i)
        if not units:
            wordless.append(i)
