"""What tells two texts apart that are nearly the same in wording.

"Play the most listened song" and "play the least listened song" share all words but one, and are
two lessons. Read here, in English and Japanese: negation, opposites, numbers, and names of tools,
fields, options and files. What stands in brackets is taken for an example: the same lesson may come
with another. Each check errs towards "different": a lesson too many costs less than one lost.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal

from apps.memory_api.playbook.opposites import ENGLISH, JAPANESE, PLAIN
from apps.memory_api.playbook.similar import CACHED, only_words, wording_similarity

Difference = Literal["negation", "opposites", "numbers", "names", "subject"]

CONTRADICTS = 0.9
"""Alike in wording from here on, the words of yes and no left aside, two texts that differ in
negation alone contradict each other.
"""

PER_SWAP = 15
"""Of so many telling words one may be another."""

_TELLING = re.compile(r"[a-z0-9]+|[一-龥々〆]+|[ァ-ヴー]+|[^\W_a-z0-9ぁ-ん一-龥々〆ァ-ヴー]+")
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）|［[^［］]*］|【[^【】]*】")
_DEEPEST = 4
"""Brackets within brackets that are followed."""
_CALL = "\ue000"
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:[.,]\d+)*(?![\d)])")
_NAME = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"--?[A-Za-z][A-Za-z0-9_-]*"  # --force
    r"|(?:[A-Za-z_][A-Za-z0-9_]*\.)*[A-Za-z_][A-Za-z0-9_]*(?=\()"  # call(
    r"|(?:[A-Za-z0-9_]+\.)*[A-Za-z0-9]*_[A-Za-z0-9_]+"  # snake_case
    r"|[A-Za-z0-9_/-]+\.[a-z]{2,5}(?![A-Za-z0-9_])"  # file.ext
    r"|[A-Za-z]*[a-z][A-Z][A-Za-z0-9]*"  # camelCase
    r")"
)
_NO = re.compile(
    r"\b(?:not|never|no|none|nor|neither|cannot|without|avoid(?:s|ed|ing)?)\b"
    r"|\b(?:rather than|instead of)\b|n['’]t\b"
    r"|(?<![少危])な(?:い|く|かった|ければ)|ません|せず|ずに|(?<!ま)ず[、。]|避け|やめ|控え|禁止|決して",
    re.IGNORECASE,
)
_MUST = re.compile(r"なければ(?:なりません|ならない|いけません|いけない)")
_YES = re.compile(
    r"\b(?:always|do|does|please|must|should|instead)\b|必ず|常に|いつも", re.IGNORECASE
)


def unlike(a: str, b: str) -> Difference | None:
    """Why two near texts do not say the same; None when nothing here tells them apart."""
    a, b = (unicodedata.normalize("NFKC", text) for text in (a, b))
    if _denials(a) != _denials(b):
        return "negation"
    if _opposed(a, b):
        return "opposites"
    if _swapped(a, b, _numbers):
        return "numbers"
    if _swapped(a, b, _names):
        return "names"
    return "subject" if _other_subject(a, b) else None


def contradict(a: str, b: str) -> bool:
    """Whether one text says to do what the other says not to do, in nearly the same words."""
    a, b = (unicodedata.normalize("NFKC", text) for text in (a, b))
    yes_and_no = _denials(a) != _denials(b) or _swap(a, b, "always", "never")
    if not yes_and_no or _swapped(a, b, _numbers) or _swapped(a, b, _names):
        return False
    plain_a, plain_b = (_YES.sub(" ", _NO.sub(" ", _MUST.sub("る", text))) for text in (a, b))
    return not _opposed(plain_a, plain_b) and wording_similarity(plain_a, plain_b) >= CONTRADICTS


def concrete(text: str) -> set[str]:
    """The names and numbers that a text stands on, those of its examples left aside."""
    plain = without_examples(unicodedata.normalize("NFKC", text))
    return set(_names(plain) | _numbers(plain))


@lru_cache(maxsize=CACHED)
def without_examples(text: str) -> str:
    """The text without what stands in brackets, and in brackets within them; `call(x)` stays a
    call.
    """
    for _ in range(_DEEPEST):
        text, found = _BRACKETS.subn(lambda found: _CALL if found.group()[0] == "(" else " ", text)
        if not found:
            break
    return text.replace(_CALL, "()")


def _other_subject(a: str, b: str) -> bool:
    """Whether each text keeps coming back to something that the other never mentions, or too many
    of the telling words are others: one of fifteen may be.
    """
    in_a, in_b = _told(without_examples(a)), _told(without_examples(b))
    only_a = [word for word in in_a if not _mentioned(word, in_b)]
    only_b = [word for word in in_b if not _mentioned(word, in_a)]
    if any(in_a[word] > 1 for word in only_a) and any(in_b[word] > 1 for word in only_b):
        return True
    allowed = min(in_a.total(), in_b.total()) // PER_SWAP
    return min(len(only_a), len(only_b)) > allowed


def _told(text: str) -> Counter[str]:
    """The telling words: no function words; of Japanese, runs of kanji and of katakana."""
    words = _TELLING.findall(_NO.sub(" ", _YES.sub(" ", text)).casefold())
    return Counter(word for word in words if word not in PLAIN)


def _mentioned(word: str, others: Iterable[str]) -> bool:
    """Also in another form: verify, verified."""
    if not word.isascii():
        return any(word in other or other in word for other in others)
    start = word if len(word) < 4 else word[: max(4, len(word) - 3)]
    return any(other.startswith(start) for other in others)


@lru_cache(maxsize=CACHED)
def _denials(text: str) -> int:
    return len(_NO.findall(_MUST.sub("", text)))


def _opposed(a: str, b: str) -> bool:
    only_a, only_b = ({_stem(word) for word in words} for words in only_words(a, b))
    for x, y in _PAIRS:
        if (x in only_a and y in only_b) or (y in only_a and x in only_b):
            return True
    if any(_negated(x, only_b) for x in only_a) or any(_negated(y, only_a) for y in only_b):
        return True
    return any(_swap(a, b, x, y) for x, y in JAPANESE)


def _negated(word: str, others: set[str]) -> bool:
    """`follow` and `unfollow`, `valid` and `invalid`."""
    return len(word) > 2 and any(prefix + word in others for prefix in ("un", "dis", "non", "in"))


def _swap(a: str, b: str, x: str, y: str) -> bool:
    """Whether one text has `x` where the other has `y`."""
    in_a, in_b = (x in a, y in a), (x in b, y in b)
    return {in_a, in_b} == {(True, False), (False, True)}


def _swapped(a: str, b: str, read: Callable[[str], frozenset[str]]) -> bool:
    """Whether each text says something outside of brackets that the other does not say at all. When
    only one does, it says more, not something else.
    """
    outside_a, outside_b = read(without_examples(a)), read(without_examples(b))
    return bool(outside_a - read(b)) and bool(outside_b - read(a))


@lru_cache(maxsize=CACHED)
def _numbers(text: str) -> frozenset[str]:
    """Numbers that say how many or how long, not `1)` of a list nor the digits of a name."""
    return frozenset(_NUMBER.findall(_NAME.sub(" ", text)))


@lru_cache(maxsize=CACHED)
def _names(text: str) -> frozenset[str]:
    """Names as they are written in code; of `apis.music.play_song(` the last part."""
    found = (match.group() for match in _NAME.finditer(text))
    plain = ((n.rpartition(".")[2] if "_" in n else n).strip("_").casefold() for n in found)
    return frozenset(name for name in plain if name)


def _stem(word: str) -> str:
    return re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 4 else word


_PAIRS = tuple((_stem(x), _stem(y)) for x, y in ENGLISH)
