"""Two versions of a text side by side, with the words that differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import regex

MAX_COMPARED_WORDS = 3_000
"""Longer texts are shown as completely different, because the comparison is quadratic."""
_WORD = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}]|[^\W\p{Han}\p{Hiragana}\p{Katakana}]+|\s+|.", regex.DOTALL
)


@dataclass(frozen=True)
class Part:
    """A piece of a text. `is_changed`: it differs in the other text."""

    text: str
    is_changed: bool


@dataclass(frozen=True)
class Comparison:
    """A text before and after a change."""

    before: Sequence[Part]
    after: Sequence[Part]

    @property
    def is_same(self) -> bool:
        return not any(part.is_changed for part in (*self.before, *self.after))


def compare_texts(before: str, after: str) -> Comparison:
    """Compare two texts by words, and Japanese by characters."""
    if before == after:
        same = [Part(before, False)]
        return Comparison(same, same)
    old, new = _WORD.findall(before), _WORD.findall(after)
    if not old or not new or len(old) + len(new) > MAX_COMPARED_WORDS:
        return Comparison(_whole(before), _whole(after))
    left: list[Part] = []
    right: list[Part] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        is_changed = kind != "equal"
        if b > a:
            left.append(Part("".join(old[a:b]), is_changed))
        if d > c:
            right.append(Part("".join(new[c:d]), is_changed))
    return Comparison(left, right)


def mark_passages(text: str, passages: Collection[str]) -> list[Part]:
    """A text with the passages that occur in it marked, the longest first."""
    found = [re.escape(p) for p in sorted(passages, key=len, reverse=True) if p and p in text]
    pieces = re.split(f"({'|'.join(found)})", text) if found else [text]
    return [Part(piece, bool(number % 2)) for number, piece in enumerate(pieces) if piece]


def _whole(text: str) -> list[Part]:
    return [Part(text, True)] if text else []
