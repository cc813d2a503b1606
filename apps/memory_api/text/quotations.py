"""Quotations of outside text in advice. Advice goes into the prompts of other agents, so a
quotation must not carry addresses or instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from apps.memory_api.text.excerpts import excerpt

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
