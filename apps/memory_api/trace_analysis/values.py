"""Numbers, names and quoted texts in a text, normalized so that two texts can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable

from memory_api.text.excerpts import fold_for_comparison

MAX_SEARCHED_CHARACTERS = 20_000
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_NAME = re.compile(
    r"\"[^\"\n]{3,60}\"|“[^”\n]{3,60}”|「[^」\n]{2,60}」|«[^»\n]{3,60}»|„[^“\n]{3,60}“"
    r"|(?<![.!?:]\s)(?<=[\w,(] )[A-ZÀ-Þ][\w'’\-]+"
    r"(?: (?:of|the|de|da|von|van)? ?[A-ZÀ-Þ][\w'’\-]+){0,4}"
)
_MAX_VALUES = 60
_FOLDED_AT_ONCE = 4_000


def numbers_in(text: str) -> set[str]:
    """The numbers of a text without thousands separators and trailing zeros: `1,250.50` is
    `1250.5`.
    """
    return {normalize_number(match) for match in _NUMBER.findall(text[:MAX_SEARCHED_CHARACTERS])}


def normalize_number(number: str) -> str:
    """`1,250.50` and `01250.5` are `1250.5`."""
    if _THOUSANDS.fullmatch(number):
        number = number.replace(",", "")
    if "." in number and number.count(".") == 1 and "," not in number:
        number = number.rstrip("0").rstrip(".")
    number = number.lstrip("0")
    return number if number[:1].isdigit() else f"0{number}"


def names_in(text: str) -> list[str]:
    """Quoted texts, and capitalized words that do not start a sentence, in order; at most 60."""
    found = (m.strip('"“”「」«»„ ') for m in _NAME.findall(text[:MAX_SEARCHED_CHARACTERS]))
    return list(dict.fromkeys(name for name in found if len(name) > 2))[:_MAX_VALUES]


def fold_long_text(text: str) -> str:
    """`fold_for_comparison` of a text of any length. No word is split."""
    parts: list[str] = []
    start = 0
    while start < len(text):
        end = start + _FOLDED_AT_ONCE
        if end < len(text):
            space = max(text.rfind(" ", start + 1, end), text.rfind("\n", start + 1, end))
            end = space if space > 0 else end
        parts.append(fold_for_comparison(text[start:end]))
        start = end
    return " ".join(part for part in parts if part)


def specific_values(text: str) -> list[str]:
    """Values of a text that are unlikely to occur elsewhere by chance, longest first: numbers of
    two digits or more, quotations and names of two words or more. A part of a name is left out.
    """
    names: list[str] = []
    for name in sorted(names_in(text), key=len, reverse=True):
        if " " in name and not name.isupper() and not any(name in longer for longer in names):
            names.append(name)
    numbers = [number for number in numbers_in(text) if len(number) > 1]
    return sorted([*names, *numbers], key=lambda value: (-len(value), value))


class FoldedText:
    """A text prepared for several searches. Only its first 20,000 characters are searched."""

    __slots__ = ("_folded", "_numbers", "text")

    def __init__(self, text: str) -> None:
        self.text = text[:MAX_SEARCHED_CHARACTERS]
        self._folded: str | None = None
        self._numbers: set[str] | None = None

    @property
    def numbers(self) -> set[str]:
        if self._numbers is None:
            self._numbers = numbers_in(self.text)
        return self._numbers

    @property
    def words(self) -> str:
        if self._folded is None:
            self._folded = f" {fold_long_text(self.text)} "
        return self._folded

    def contains(self, value: str) -> bool:
        """Whether a number, or the words of a text, occur as whole words."""
        if _NUMBER.fullmatch(value):
            return normalize_number(value) in self.numbers
        words = fold_for_comparison(value)
        return bool(words) and f" {words} " in self.words


def missing_values(values: Iterable[str], texts: Iterable[FoldedText]) -> list[str]:
    """The values that none of the texts contains, in order."""
    searched = list(texts)
    return [value for value in values if not any(text.contains(value) for text in searched)]
