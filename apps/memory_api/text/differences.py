"""Differences in meaning between texts that are similar in wording, in English and Japanese.

"Play the most listened song" and "play the least listened song" differ in one word and are two
lessons. The checks cover negation, antonyms, numbers, and names of tools, fields, options and
files. Text in brackets is treated as an example, which does not change a lesson. In doubt, a check
reports a difference, because a redundant lesson is less harmful than a lost one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from memory_api.text.caching import cache_short_texts
from memory_api.text.excerpts import excerpt
from memory_api.text.similarity import exclusive_words, wording_similarity


def _word_pairs(text: str) -> tuple[tuple[str, str], ...]:
    words = text.replace(",", " ").split()
    return tuple(zip(words[::2], words[1::2], strict=True))


def _halved_words(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((w[: len(w) // 2], w[len(w) // 2 :]) for w in text.split())


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH_ANTONYMS = _word_pairs(
    """always never, most least, more less, more fewer, maximum minimum, max min, highest
    lowest, high low, higher lower, largest smallest, larger smaller, large small, longest
    shortest, long short, newest oldest, new old, earliest latest, early late, earlier
    later, first last, before after, previous next, enable disable, add remove, add delete,
    create delete, insert delete, include exclude, increase decrease, with without, send
    receive, sent received, ascending descending, open close, opened closed, left right,
    approve reject, accept reject, accept decline, allow deny, allow forbid, true false, on
    off, success failure, succeed fail, upper lower, start stop, start end, begin end,
    public private, read write, push pull, encode decode, encrypt decrypt, required
    optional, mandatory optional, up down, above below, over under, internal external, input
    output, import export, local remote, upload download, login logout, sync async, best
    worst, positive negative, same different, single multiple, one all, many few, buy sell,
    fast slow, inside outside, past future, yes no, use avoid, keep remove, keep discard,
    top bottom, horizontal vertical, absolute relative, client server"""
)
JAPANESE_ANTONYMS = _halved_words(
    """最大最小 最多最少 最新最古 最初最後 最高最低 有効無効 追加削除 開始終了 成功失敗
    許可拒否 入力出力 必要不要 可能不可 前後 上下 増減 多少 高低 長短 左右 早遅
    大小 新古 男女 朝夜 昼夜 夏冬 白黒 内外 東西 南北 買売 送受 開閉 着脱 強弱
    軽重"""
)
FUNCTION_WORDS = _word_set(
    """a an the and or but if when whenever while then than that this these those there here it
    its they them their you your we our i he she his her who whom whose which what how why
    where of in on at to from by for with about into onto over under as is are was were be
    been being am has have had having can could will would shall should may might so such
    also just only even very first before after any each every all both some more most other
    another same own again once until unless because since between during up down out off e
    g ie etc"""
)
"""English words without meaning of their own."""
Difference = Literal["negation", "opposites", "numbers", "names", "subject"]

MIN_CONTRADICTION_SIMILARITY = 0.9
"""Minimum wording similarity, without affirming and negating words, of texts that contradict each
other.
"""

WORDS_PER_ALLOWED_CHANGE = 15
"""One content word in this many may differ between texts on the same subject."""

_CONTENT_WORD = re.compile(r"[a-z0-9]+|[一-龥々〆]+|[ァ-ヴー]+|[^\W_a-z0-9ぁ-ん一-龥々〆ァ-ヴー]+")
_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）|［[^［］]*］|【[^【】]*】")
_MAX_BRACKET_DEPTH = 4
_CALL_PLACEHOLDER = "\ue000"
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.])\d+(?:[.,]\d+)*(?![\d)])")
_NAME = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"--?[A-Za-z][A-Za-z0-9_-]{0,80}"  # --force
    r"|(?:[A-Za-z_][A-Za-z0-9_]{0,80}\.){0,8}[A-Za-z_][A-Za-z0-9_]{0,80}(?=\()"  # call(
    r"|(?:[A-Za-z0-9_]{1,80}\.){0,8}[A-Za-z0-9]{0,80}_[A-Za-z0-9_]{1,80}"  # snake_case
    r"|[A-Za-z0-9_/-]{1,200}\.[a-z]{2,5}(?![A-Za-z0-9_])"  # file.ext
    r"|[A-Za-z]{0,80}[a-z][A-Z][A-Za-z0-9]{0,80}"  # camelCase
    r")"
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|nor|neither|cannot|without|avoid(?:s|ed|ing)?)\b"
    r"|\b(?:rather than|instead of)\b|\b\w{1,8}n['’]t\b"
    r"|(?<![少危])な(?:い|く|かった|ければ)|ません|せず|ずに|(?<!ま)ず[、。]|避け|やめ|控え|禁止|決して",
    re.IGNORECASE,
)
_JAPANESE_MUST = re.compile(r"なければ(?:なりません|ならない|いけません|いけない)")
_AFFIRMATION = re.compile(
    r"\b(?:always|do|does|please|must|should|instead)\b|必ず|常に|いつも", re.IGNORECASE
)


def find_difference(a: str, b: str) -> Difference | None:
    """Return the first difference in meaning between two texts with similar wording; None if no
    check finds one.
    """
    a, b = (unicodedata.normalize("NFKC", text) for text in (a, b))
    if _count_negations(a) != _count_negations(b):
        return "negation"
    if _has_antonyms(a, b):
        return "opposites"
    if _both_have_own(a, b, _find_numbers):
        return "numbers"
    if _both_have_own(a, b, _find_names):
        return "names"
    return "subject" if _has_other_subject(a, b) else None


def excerpt_differences(a: str, b: str, limit: int = 80) -> tuple[str, str]:
    """Two different texts as one line each, of about `limit` characters, that contain the place
    where they start to differ.
    """
    pairs = enumerate(zip(a, b, strict=False))
    start = next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))
    begin = max(0, start - limit // 4) if max(len(a), len(b)) > limit else 0
    return _window(a, begin, limit), _window(b, begin, limit)


def _window(text: str, begin: int, limit: int) -> str:
    lead = "…" if begin else ""
    return f"{lead}{excerpt(text[begin:], limit)}"


def contradicts(a: str, b: str) -> bool:
    """Whether one text advises what the other advises against, in nearly the same words."""
    a, b = (unicodedata.normalize("NFKC", text) for text in (a, b))
    differs_in_negation = _count_negations(a) != _count_negations(b) or _is_swapped(
        a, b, "always", "never"
    )
    if (
        not differs_in_negation
        or _both_have_own(a, b, _find_numbers)
        or _both_have_own(a, b, _find_names)
    ):
        return False
    neutral_a, neutral_b = (
        _AFFIRMATION.sub(" ", _NEGATION.sub(" ", _JAPANESE_MUST.sub("る", text))) for text in (a, b)
    )
    return (
        not _has_antonyms(neutral_a, neutral_b)
        and wording_similarity(neutral_a, neutral_b) >= MIN_CONTRADICTION_SIMILARITY
    )


def names_and_numbers(text: str) -> set[str]:
    """The names and numbers in a text, without its examples."""
    plain = strip_examples(unicodedata.normalize("NFKC", text))
    return set(_find_names(plain) | _find_numbers(plain))


@cache_short_texts
def strip_examples(text: str) -> str:
    """Remove text in brackets, also nested. `call(x)` becomes `call()`."""
    for _ in range(_MAX_BRACKET_DEPTH):
        text, count = _BRACKETS.subn(
            lambda match: _CALL_PLACEHOLDER if match.group()[0] == "(" else " ", text
        )
        if not count:
            break
    return text.replace(_CALL_PLACEHOLDER, "()")


def _has_other_subject(a: str, b: str) -> bool:
    """Whether each text repeats a word that the other does not have, or more content words differ
    than `WORDS_PER_ALLOWED_CHANGE` allows.
    """
    in_a, in_b = (_count_content_words(strip_examples(text)) for text in (a, b))
    only_a = [word for word in in_a if not _contains_form(word, in_b)]
    only_b = [word for word in in_b if not _contains_form(word, in_a)]
    if any(in_a[word] > 1 for word in only_a) and any(in_b[word] > 1 for word in only_b):
        return True
    allowed_changes = min(in_a.total(), in_b.total()) // WORDS_PER_ALLOWED_CHANGE
    return min(len(only_a), len(only_b)) > allowed_changes


def _count_content_words(text: str) -> Counter[str]:
    """Count the words that are no function words; in Japanese, the runs of kanji and katakana."""
    words = _CONTENT_WORD.findall(_NEGATION.sub(" ", _AFFIRMATION.sub(" ", text)).casefold())
    return Counter(word for word in words if word not in FUNCTION_WORDS)


def _contains_form(word: str, others: Iterable[str]) -> bool:
    """Whether `others` has the word or another form of it: verify, verified."""
    if not word.isascii():
        return any(word in other or other in word for other in others)
    start = word if len(word) < 4 else word[: max(4, len(word) - 3)]
    return any(other.startswith(start) for other in others)


@cache_short_texts
def _count_negations(text: str) -> int:
    return len(_NEGATION.findall(_JAPANESE_MUST.sub("", text)))


def _has_antonyms(a: str, b: str) -> bool:
    """Whether one text has an antonym of a word of the other."""
    only_a, only_b = ({_stem(word) for word in words} for words in exclusive_words(a, b))
    for x, y in _STEMMED_ANTONYMS:
        if (x in only_a and y in only_b) or (y in only_a and x in only_b):
            return True
    if any(_has_negated_form(x, only_b) for x in only_a):
        return True
    if any(_has_negated_form(y, only_a) for y in only_b):
        return True
    return any(_is_swapped(a, b, x, y) for x, y in JAPANESE_ANTONYMS)


def _has_negated_form(word: str, others: set[str]) -> bool:
    """`follow` and `unfollow`, `valid` and `invalid`."""
    return len(word) > 2 and any(prefix + word in others for prefix in ("un", "dis", "non", "in"))


def _is_swapped(a: str, b: str, x: str, y: str) -> bool:
    """Whether one text has only `x` and the other only `y`."""
    in_a, in_b = (x in a, y in a), (x in b, y in b)
    return {in_a, in_b} == {(True, False), (False, True)}


def _both_have_own(a: str, b: str, find: Callable[[str], frozenset[str]]) -> bool:
    """Whether each text, without its examples, has a finding that the other text does not have at
    all. If only one has, it is more specific and not different.
    """
    outside_a, outside_b = find(strip_examples(a)), find(strip_examples(b))
    return bool(outside_a - find(b)) and bool(outside_b - find(a))


@cache_short_texts
def _find_numbers(text: str) -> frozenset[str]:
    """The numbers in a text, without list numbers (`1)`) and digits in names."""
    return frozenset(_NUMBER.findall(_NAME.sub(" ", text)))


@cache_short_texts
def _find_names(text: str) -> frozenset[str]:
    """The names in a text that are written as in code. Of `apis.music.play_song(`, the last
    part.
    """
    names = (match.group() for match in _NAME.finditer(text))
    plain = ((n.rpartition(".")[2] if "_" in n else n).strip("_").casefold() for n in names)
    return frozenset(name for name in plain if name)


def _stem(word: str) -> str:
    return re.sub(r"(?:ing|ed|es|s|e)$", "", word) if len(word) > 4 else word


_STEMMED_ANTONYMS = tuple((_stem(x), _stem(y)) for x, y in ENGLISH_ANTONYMS)
