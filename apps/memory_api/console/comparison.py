"""Two versions of a text side by side, with the words that differ."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import regex

MAX_COMPARED_WORDS = 3_000
"""Of a pair of texts, 2 ms of work. Longer texts are shown as completely different."""
MAX_COMPARED_WORDS_OF_PAGE = 60_000
"""Of all pairs of a page, 60 ms of work. The texts after them are shown as completely different."""
_WORD = regex.compile(
    r"`[^`\n]+`|[\p{Han}\p{Hiragana}\p{Katakana}]|[^\W\p{Han}\p{Hiragana}\p{Katakana}]+|\s+|.",
    regex.DOTALL,
)
_CODE = re.compile("`[^`]*`")
BULLET_FIELDS = ("content", "when_to_use", "title", "tags", "section", "status", "pinned")
"""Fields of a bullet that a person compares, the most important first."""
TEXT_FIELDS = ("content", "when_to_use")
"""Those that are compared word by word."""


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


@dataclass(frozen=True)
class FieldChange:
    """A field of a bullet that a change sets: its values as texts, and those of `TEXT_FIELDS`
    compared.
    """

    name: str
    old: str
    new: str
    comparison: Comparison | None


class TextComparer:
    """Compares the texts of one page by words, and Japanese by characters."""

    def __init__(self) -> None:
        self._word_count = 0

    def compare(self, before: str, after: str) -> Comparison:
        if before == after:
            same = [Part(before, False)]
            return Comparison(same, same)
        if self._word_count > MAX_COMPARED_WORDS_OF_PAGE:
            return Comparison(_whole(before), _whole(after))
        old, new = _WORD.findall(before), _WORD.findall(after)
        self._word_count += len(old) + len(new)
        if not old or not new or len(old) + len(new) > MAX_COMPARED_WORDS:
            return Comparison(_whole(before), _whole(after))
        common = list(_common_words(old, new))
        return Comparison(
            _to_parts(old, {position for position, _ in common}),
            _to_parts(new, {position for _, position in common}),
        )

    def compare_field(self, name: str, old: str, new: str) -> FieldChange:
        compared = self.compare(old, new) if name in TEXT_FIELDS else None
        return FieldChange(name, old, new, compared)

    def compare_bullets(self, before: Any, after: Any) -> list[FieldChange]:
        """All fields that differ between two states of a bullet. A state of None is no bullet: all
        its fields but `section`, `status` and `pinned` are empty.
        """
        changes: list[FieldChange] = []
        for name in BULLET_FIELDS:
            if (before is None or after is None) and name in ("section", "status", "pinned"):
                continue
            old, new = field_text(before, name), field_text(after, name)
            if old != new:
                changes.append(self.compare_field(name, old, new))
        return changes


def field_text(bullet: Any, name: str) -> str:
    """A field of a bullet as text: tags with commas between them, yes as a check mark."""
    value = getattr(bullet, name, None)
    if isinstance(value, bool):
        return "✓" if value else ""
    if isinstance(value, list):
        return ", ".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return "" if value is None else str(value)


def _common_words(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The positions of a longest common subsequence, the last first. The work is len(old) ×
    len(new) bits, whatever the texts are (Hyyrö 2004, "Bit-parallel LCS-length computation").

    In row `n`, bit `i` is 0 if `old[: i + 1]` and `new[: n + 1]` have one more word in common than
    `old[:i]` and `new[: n + 1]`.
    """
    places: dict[str, int] = {}
    for position, word in enumerate(old):
        places[word] = places.get(word, 0) | 1 << position
    row = mask = (1 << len(old)) - 1
    rows: list[int] = []
    for word in new:
        equal = row & places.get(word, 0)
        row = (row + equal | row - equal) & mask
        rows.append(row)
    i, n = len(old) - 1, len(new) - 1
    while i >= 0 and n >= 0:
        if rows[n] >> i & 1:
            i -= 1
        elif n and not rows[n - 1] >> i & 1:
            n -= 1
        else:
            yield i, n
            i, n = i - 1, n - 1


def _to_parts(words: Sequence[str], common: Collection[int]) -> list[Part]:
    """Spaces between two changed words are changed, so that these are one part."""

    def is_changed(position: int) -> bool:
        if position not in common:
            return True
        neighbors = (position - 1, position + 1)
        return words[position].isspace() and not any(
            other in common or not 0 <= other < len(words) for other in neighbors
        )

    groups = groupby(range(len(words)), is_changed)
    return [Part("".join(words[n] for n in group), changed) for changed, group in groups]


def mark_passages(text: str, passages: Collection[str]) -> list[Part]:
    """A text with the passages that occur in it marked. A mark does not cut `code`: what it touches
    of it is marked as a whole.
    """
    found = [m.span() for p in passages if p for m in re.finditer(re.escape(p), text)]
    code = [m.span() for m in _CODE.finditer(text)]
    found += [span for span in code if any(a < span[1] and span[0] < b for a, b in found)]
    marked: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if marked and start < marked[-1][1]:
            marked[-1] = marked[-1][0], max(end, marked[-1][1])
        else:
            marked.append((start, end))
    edges = [0, *(edge for span in marked for edge in span), len(text)]
    pieces = [(text[a:b], number) for number, (a, b) in enumerate(pairwise(edges))]
    return [Part(piece, bool(number % 2)) for piece, number in pieces if piece]


def _whole(text: str) -> list[Part]:
    return [Part(text, True)] if text else []
