"""What a text says, however it is written: escaped, with markup, with invisible characters."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_MAY_DIFFER = re.compile(r"[<&\x1b]|\]\(|[^\x00-\x7f]")
"""Without a match, a text is displayed as it is written."""
_MARKUP = re.compile(
    r"<!--[^<>]*-->|<[/!?]?[a-zA-Z](?:\"[^\"<]*+\"|'[^'<]*+'|[^<>])*+>"
    r"|\x1b\[[0-9;?]{0,40}[a-zA-Z]|(?<=\])\([^()<>\s]*\)"
)
"""Tags and comments of HTML, escapes of terminals, targets of Markdown links."""
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point."""
_TAG_CHARACTERS = {0xE0000 + code: code for code in range(0x20, 0x7F)}
"""Invisible copies of ASCII, which models read."""


def readings_of(texts: Iterable[str]) -> Iterator[str]:
    """Each text as it is written, without one and two layers of JSON escapes where it has any, and
    each of these as it is displayed.
    """
    for text in texts:
        yield from (text, *_displayed(text))
        for _ in range(2):
            if "\\" not in text:
                break
            text = _ESCAPE.sub(_unescape, text)
            yield from (text, *_displayed(text))


def _displayed(text: str) -> set[str]:
    """A text without markup and invisible characters, entities and compatibility forms (full
    width, for example) replaced, if this differs from what is written. Markup may part words or be
    within one.
    """
    if not _MAY_DIFFER.search(text):
        return set()
    plain = unicodedata.normalize("NFKC", html.unescape(text))
    readings = {_INVISIBLE.sub(gap, _MARKUP.sub(gap, plain)) for gap in ("", " ")}
    return {*readings, plain.translate(_TAG_CHARACTERS)} - {text}


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPED_CHARACTERS.get(match[2], match[2])
