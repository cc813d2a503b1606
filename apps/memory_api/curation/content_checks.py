"""Limits of the texts that a model may write over bullets. They apply to the curator and to the
consolidation.

The author of a trace may control what a model writes, so a new text must consist mostly of words of
the bullets that it replaces, and must not lose their names and numbers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Sequence

from memory_api.playbooks.deltas import normalize_content
from memory_api.playbooks.models import Bullet
from memory_api.text.quotations import has_address
from memory_api.text.similarity import containment
from memory_api.text.terms import content_terms

MAX_BULLET_CHARACTERS = 500
"""Characters of the content of a bullet that a model writes: one trigger and one action."""
MIN_KNOWN_WORD_SHARE = 0.5
"""Share of the words of a new content that the changed bullets contain, 0 to 1."""
MIN_KEPT_WORD_SHARE = 0.5
"""The share of a bullet's words that an UPDATE or MERGE of a curation must keep, 0 to 1. Vectors do
not tell rewording from other advice: cosines of 0.45 to 0.80 for rewordings, up to 0.83 for
different bullets of one playbook (bundled embedder). Recorded merges kept .94 to 1 of each bullet.
"""
MIN_CONFIRMING_SHARE = 0.5
"""The share of the content terms of a waiting bullet that a lesson needs to confirm it, 0 to 1. In
recorded curations, lessons that confirmed one had .58 to 1, those of other bullets .39 (median).
"""
MAX_QUOTED = 5
MAX_OMITTED_SHARE = 0.5
"""Share of the names and numbers of the changed bullets that a new content may omit, 0 to 1."""

_BRACKETS = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|（[^（）]*）|［[^［］]*］|【[^【】]*】")
_MAX_BRACKET_DEPTH = 4
_WORD = re.compile(r"\w+")
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


def is_too_long(bullet: Bullet) -> bool:
    """Whether the next consolidation is to shorten or split a bullet."""
    return len(bullet.content) > MAX_BULLET_CHARACTERS


def find_long_contents(contents: Iterable[str | None]) -> str:
    """What to ask a model for if contents are too long; "" if none is."""
    long = [text for text in contents if text and len(text) > MAX_BULLET_CHARACTERS]
    if not long:
        return ""
    quoted = "; ".join(f"{text[:60]!r}… has {len(text):,}" for text in long[:MAX_QUOTED])
    return (
        f"`content` has at most {MAX_BULLET_CHARACTERS} characters, one trigger and one action: "
        f"{quoted}. Shorten it without losing a name or a number, or write several bullets."
    )


def find_content_problem(
    content: str,
    bullets: Sequence[Bullet],
    omitted: Collection[str] = (),
    tools: Collection[str] = (),
) -> str | None:
    """What is wrong with a content that replaces these bullets; None if nothing is.

    It has mostly their words, and all their names and numbers, except those that the model names in
    `omitted`: at most half of them, and no tool.
    """
    old = {name for bullet in bullets for name in names_and_numbers(bullet.content)}
    lost = old - names_and_numbers(content)
    tool_names = {tool.casefold() for tool in tools}
    unexplained = {
        name
        for name in lost
        if name in tool_names or name not in {item.casefold() for item in omitted}
    }
    if unexplained:
        return f"The new content omits {', '.join(sorted(unexplained)[:5])}."
    if len(lost) > MAX_OMITTED_SHARE * len(old):
        return "The new content omits most names and numbers of the bullets."
    text = " ".join(f"{bullet.when_to_use} {bullet.title} {bullet.content}" for bullet in bullets)
    if containment(content, text) < MIN_KNOWN_WORD_SHARE:
        return "Most words of the new content are not in the bullets."
    return None


def find_lost_words(bullet: Bullet, when_to_use: str, content: str) -> str | None:
    """What is wrong if a new trigger and advice replace those of a bullet by others; None if
    nothing is.
    """
    old, new = f"{bullet.when_to_use} {bullet.content}", f"{when_to_use} {content}"
    if containment(old, new) < MIN_KEPT_WORD_SHARE:
        return f"The new text drops most words of {bullet.id}."
    return None


def contains_advice(text: str, part: str) -> bool:
    """Whether a text has all words of another one, one after the other. Examples in brackets and
    punctuation do not count.
    """
    words, wanted = (
        f" {' '.join(_WORD.findall(normalize_content(_strip_examples(each))))} "
        for each in (text, part)
    )
    return not wanted.strip() or wanted in words


def may_confirm(lesson: str, waiting: str) -> bool:
    """Whether a lesson says what a waiting bullet says: that has an author who may want any lesson
    to confirm it. Only a person confirms one with an address.
    """
    terms = content_terms(waiting)
    shared = terms & content_terms(lesson)
    return len(shared) >= MIN_CONFIRMING_SHARE * len(terms) and not has_address(waiting)


def names_and_numbers(text: str) -> set[str]:
    """The names that are written as in code, such as tools, fields, options and files, and the
    numbers in a text, without its examples in brackets.
    """
    plain = _strip_examples(unicodedata.normalize("NFKC", text))
    return _find_names(plain) | _find_numbers(plain)


def _strip_examples(text: str) -> str:
    """Remove text in brackets, also nested. `call(x)` becomes `call()`."""
    for _ in range(_MAX_BRACKET_DEPTH):
        text, count = _BRACKETS.subn(
            lambda match: _CALL_PLACEHOLDER if match.group()[0] == "(" else " ", text
        )
        if not count:
            break
    return text.replace(_CALL_PLACEHOLDER, "()")


def _find_numbers(text: str) -> set[str]:
    """The numbers in a text, without list numbers (`1)`) and digits in names."""
    return set(_NUMBER.findall(_NAME.sub(" ", text)))


def _find_names(text: str) -> set[str]:
    """The names in a text. Of `apis.music.play_song(`, the last part."""
    names = (match.group() for match in _NAME.finditer(text))
    plain = ((n.rpartition(".")[2] if "_" in n else n).strip("_").casefold() for n in names)
    return {name for name in plain if name}
