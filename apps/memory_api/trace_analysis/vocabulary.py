"""Words of a language or a domain, from the files in `vocabularies/`.

A vocabulary adds a category or finds a phrase to quote. It never proves anything. Each file names
its language (`*` for formats that do not depend on a language), its source, its license and, in
`datasets`, the data that it was written on: `bench rules` switches these off.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from memory_api.text.excerpts import detect_language
from memory_api.traces.schemas import ErrorCategory

_FOLDER = Path(__file__).parent / "vocabularies"
_ANY_LANGUAGE = "*"
_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE_CHARACTERS = 240
_MAX_SAMPLES = 6
_MIN_COMMON_WORDS = 2
_ERROR_SAMPLE_CHARACTERS = 900


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """Error messages that match `pattern` are of this kind and category."""

    name: str
    category: ErrorCategory
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The merged patterns of a language. A name without patterns never matches.
    `capitalizes_nouns`: a capital letter does not mark a name.
    """

    language: str
    patterns: dict[str, re.Pattern[str]]
    error_kinds: tuple[ErrorKind, ...]
    capitalizes_nouns: bool = False

    def search(self, name: str, text: str) -> re.Match[str] | None:
        pattern = self.patterns.get(name)
        return pattern.search(text) if pattern else None

    def match(self, name: str, text: str) -> re.Match[str] | None:
        pattern = self.patterns.get(name)
        return pattern.match(text) if pattern else None

    def finditer(self, name: str, text: str) -> Iterator[re.Match[str]]:
        pattern = self.patterns.get(name)
        return pattern.finditer(text) if pattern else iter(())

    def classify_error(self, message: str) -> tuple[str, ErrorCategory]:
        """Kind and category of an error message: of all kinds, the one that matches first in the
        text. ("failed", TOOL_ERROR) if none matches.
        """
        size = _ERROR_SAMPLE_CHARACTERS
        sample = message if len(message) <= 2 * size else f"{message[:size]}\n{message[-size:]}"
        matches = [
            (match.start(), rank, kind)
            for rank, kind in enumerate(self.error_kinds)
            if (match := kind.pattern.search(sample))
        ]
        if not matches:
            return "failed", ErrorCategory.TOOL_ERROR
        kind = min(matches)[2]
        return kind.name, kind.category


@cache
def _files() -> tuple[dict[str, Any], ...]:
    return tuple(
        tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(_FOLDER.glob("*.toml"))
    )


@cache
def load_vocabulary(language: str, without_dataset: str | None = None) -> Vocabulary:
    """The vocabulary of a language code, with what holds in any language. `without_dataset` leaves
    out the files that were written on a data set.
    """
    patterns: dict[str, list[str]] = {}
    kinds: dict[str, tuple[ErrorCategory, list[str]]] = {}
    capitalizes_nouns = False
    for file in _files():
        if file["language"] not in (_ANY_LANGUAGE, language):
            continue
        if without_dataset in file.get("datasets", ()):
            continue
        capitalizes_nouns |= file.get("capitalizes_nouns", False)
        for name, items in file.get("patterns", {}).items():
            patterns.setdefault(name, []).extend(items)
        for name, error in file.get("errors", {}).items():
            category = ErrorCategory(error["category"])
            kinds.setdefault(name, (category, []))[1].extend(error["patterns"])
    return Vocabulary(
        language,
        {name: _join(items) for name, items in patterns.items()},
        tuple(ErrorKind(name, category, _join(items)) for name, (category, items) in kinds.items()),
        capitalizes_nouns,
    )


def _join(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


@cache
def _languages_by_word() -> dict[str, tuple[str, ...]]:
    """Common word -> the languages in which it is common."""
    languages: dict[str, tuple[str, ...]] = {}
    for file in _files():
        for word in file.get("common_words", ()):
            languages[word] = (*languages.get(word, ()), file["language"])
    return languages


def language_of(texts: Iterable[str]) -> str:
    """`ja` by its script; another language whose common words are more frequent than those of
    English; else `en`. Reads the first 240 characters of six texts.
    """
    samples = [text[:_SAMPLE_CHARACTERS] for text in islice(texts, _MAX_SAMPLES)]
    if detect_language(samples) == "ja":
        return "ja"
    languages = _languages_by_word()
    counts: Counter[str] = Counter()
    for sample in samples:
        for word in _WORD.findall(sample.casefold()):
            for language in languages.get(word, ()):
                counts[language] += 1
    best, count = counts.most_common(1)[0] if counts else ("en", 0)
    return best if count >= _MIN_COMMON_WORDS and count > counts["en"] else "en"
