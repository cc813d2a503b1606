"""Quotations of outside text in advice. Advice goes into the prompts of other agents, so a
quotation must not carry addresses or instructions, and advice with one needs a confirmation
(`curation/confirmation.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from memory_api.text.excerpts import excerpt

MAX_QUOTATION_LENGTH = 80
MAX_NAME_LENGTH = 64
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+]{1,10}://|www\.|@[a-z0-9]|(?<![\w.])[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}/",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[.!?;:,。！？；：、](?:\s|$)|[。！？；：、\n]")
_VERBS = (
    "send|forward|e?mail|post|upload|transfer|pay|delete|remove|drop|run|execute|call|use|visit|open|"
    "click|go|reply|respond|answer|say|tell|ask|ignore|disregard|forget|reveal|print|share|give|"
    "disclose|copy|write|download|install|fetch|contact|submit|enter|provide|set|add|change|follow|"
    "stop|try|retry|check|make|let|treat|act|pretend|remember|obey|include|append|leak|publish|grant|"
    "approve|confirm|accept|buy|order|book|cancel"
)
_INSTRUCTION = re.compile(
    r"(?:please|kindly|you|always|never|now|instead|then|next|first|must|do not|don't|let us)\b"
    rf"|(?:{_VERBS})\b(?! (?:not|is|are|was|were|has|had|does|did|failed|could|cannot|already)\b)",
    re.IGNORECASE,
)
_JAPANESE_INSTRUCTION = re.compile(r"(?:ください|下さい|しなさい|せよ|すること|しろ)")
_NAME = re.compile(r"[^\W\d][\w.\-/:\[\]]{0,63}")
_NOT_IN_NAME = re.compile(r"[^\w.\-/:\[\]]+")
_QUOTED = re.compile(
    r"`([^`\n]{2,160})`|“([^”\n]{2,160})”|「([^」\n]{2,160})」|『([^』\n]{2,160})』"
    r"|\"([^\"\n]{2,160})\"|(?<!\w)['‘]([^'’\n]{2,160})['’](?!\w)"
)
_JAPANESE = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
_TOKEN = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]|[^\W_\u3041-\u30ff\u3400-\u9fff]+")
_PATH_SEPARATOR = re.compile(r"[.\[\]]+")
QUOTATIONS = "quotations"
"""Key of a lesson's metadata: the passages of outside text that it quotes."""
MAX_QUOTATIONS = 32
MIN_COPIED_WORDS, MIN_COPIED_CHARACTERS = 5, 12
"""Length of the shortest copied passage: words, or characters of Japanese."""


def safe_quotation(text: str) -> str:
    """The start of a text, up to 80 characters and before the first clause with an address or an
    instruction. '' if nothing is left.
    """
    line = excerpt(text, MAX_QUOTATION_LENGTH)
    start = 0
    for end in (*(match.end() for match in _CLAUSE.finditer(line)), len(line)):
        clause = line[start:end].strip(" \"'“”‘’([{-*>#")
        if (
            _ADDRESS.search(clause)
            or _INSTRUCTION.match(clause)
            or _JAPANESE_INSTRUCTION.search(clause)
        ):
            return line[:start].rstrip(" :;,、：")
        start = end
    return line


def safe_quotations(texts: Iterable[str]) -> list[str]:
    """The quotations that are not shortened: a part of a name is no name."""
    return [text for text in texts if safe_quotation(text) == text]


def is_safe_name(name: str) -> bool:
    """Whether advice may name this tool or argument: one word without spaces."""
    return _NAME.fullmatch(name) is not None


def to_safe_name(name: str) -> str:
    """The name with other characters replaced, as one word of at most 64 characters."""
    return name if is_safe_name(name) else _NOT_IN_NAME.sub("_", name)[:MAX_NAME_LENGTH].strip("_")


def find_quotations(
    text: str, outside_texts: Iterable[str], own_names: Collection[str] = ()
) -> list[str]:
    """The passages of `text` that occur in outside texts: quoted or marked as code, or copied with
    at least 5 words (12 characters of Japanese). `own_names`, such as the names of tools, are no
    quotations. Linear in the length of the outside texts.
    """
    own = {name.casefold() for name in own_names}
    spans = {
        span: _PATH_SEPARATOR.split(span.rstrip("…. "))[-1].casefold() or span.casefold()
        if " " not in span
        else span.rstrip("…. ").casefold()
        for match in _QUOTED.finditer(text)
        if (span := next(group for group in match.groups() if group))
        and any(c.isalpha() for c in span)
        and span.casefold() not in own
    }
    size = MIN_COPIED_CHARACTERS if _JAPANESE.search(text) else MIN_COPIED_WORDS
    passages = _passages(text, size)
    found: dict[str, None] = {}
    for outside in outside_texts:
        folded = outside.casefold()
        found |= {span: None for span, needle in spans.items() if _has_words(folded, needle)}
        if passages:
            tokens = _TOKEN.findall(folded)
            for words in zip(*(tokens[n:] for n in range(size)), strict=False):
                if words in passages:
                    found[passages[words]] = None
        if len(found) >= MAX_QUOTATIONS:
            break
    return list(found)[:MAX_QUOTATIONS]


def find_quotations_of(
    texts: Iterable[str], outside_texts: Sequence[str], own_names: Collection[str] = ()
) -> dict[str, list[str]]:
    """`find_quotations` of each text. A process of its own may execute it, so it is in a module
    that imports little.
    """
    return {text: find_quotations(text, outside_texts, own_names) for text in texts}


def _has_words(text: str, words: str) -> bool:
    """Whether a text contains these words, not only as a part of another word."""
    start = text.find(words)
    while start >= 0:
        end = start + len(words)
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if not (_is_word(before) and _is_word(words[0])) and not (
            _is_word(after) and _is_word(words[-1])
        ):
            return True
        start = text.find(words, end)
    return False


def _is_word(character: str) -> bool:
    return character == "_" or (character.isalnum() and not _JAPANESE.match(character))


def _passages(text: str, size: int) -> dict[tuple[str, ...], str]:
    """Each run of `size` words of a text → the run as it is written."""
    matches = list(_TOKEN.finditer(text))
    return {
        tuple(match[0].casefold() for match in matches[n : n + size]): text[
            matches[n].start() : matches[n + size - 1].end()
        ]
        for n in range(len(matches) - size + 1)
    }
