"""Facts and strategies as sentences, for people and for models: one template for each language."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from memory_api.trace_analysis.facts import Fact
from memory_api.trace_analysis.failures import is_exit_code

_FOLDER = Path(__file__).parent / "templates"
LANGUAGES = ("en", "ja")
_FULL_STOP = re.compile(r"[.!?。！？…]$")


def fact_sentences(
    facts: Iterable[Fact], language: str, *, names_attempts: bool = False
) -> list[str]:
    """Each fact as one or two sentences. `names_attempts`: events of earlier attempts may be named
    (`a1.e0003`), because the reader is shown them.
    """
    sentences = (
        render(language, fact.kind.value, fact.values, fact.event_ids, names_attempts)
        for fact in facts
    )
    return [sentence for sentence in sentences if sentence]


def render(language: str, macro: str, *arguments: Any) -> str:
    """A macro of a language's template, as one line."""
    text = str(getattr(_macros(language if language in LANGUAGES else "en"), macro)(*arguments))
    lines = filter(None, map(str.strip, text.split("\n")))
    return ("" if language == "ja" else " ").join(lines)


@cache
def _macros(language: str) -> Any:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # plain text, not HTML
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    left, right = "「」" if language == "ja" else "“”"

    def quote(text: str) -> str:
        return f"{left}{_one_line(text)}{right}"

    def quoted_sentence(text: str) -> str:
        stop = "。" if language == "ja" else "."
        return quote(text) + ("" if _FULL_STOP.search(text) else stop)

    environment.filters.update(
        code=_code,
        quote=quote,
        quoted_sentence=quoted_sentence,
    )
    cast("dict[str, Any]", environment.tests)["exit_code"] = is_exit_code
    return environment.get_template(f"facts.{language}.j2").module


def _one_line(text: str) -> str:
    return " ".join(str(text).split())


def _code(text: str) -> str:
    return f"`{_one_line(text).replace('`', '')}`"
