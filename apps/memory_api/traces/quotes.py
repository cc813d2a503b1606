"""Short, safe quotes of whatever a trace holds, and the language it is written in."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice

QUOTE = 160
_SPACE = re.compile(r"\s+")
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b\u2028-\u202e\u2066-\u2069\ufeff]"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]")
_LETTER = re.compile(r"[^\W\d_]")
_JOINERS = "\u200d\ufe0e\ufe0f"
_MARKS = re.compile(r"\*\*|`{3}|^[ \t]*(?:#{1,6}|[-*>])[ \t]+|^-{3,}$", re.MULTILINE)
_GREETING = re.compile(
    r"^(?:(?:hi|hello|hey|umm?|good (?:morning|afternoon|evening))(?: there)?[!,.\s]+"
    r"|(?:こんにち[はわ]|こんばん[はわ]|おはようございます|はじめまして|すみません|よろしくお願い(?:いた|致)?します|お願いします)[。、!！\s]*)+",
    re.IGNORECASE,
)
_SAMPLE = 1_500
_SAMPLES = 40


def cut(text: str, limit: int = QUOTE) -> str:
    """One line of at most `limit` characters, cut between characters (never inside a composed one),
    with … if cut."""
    head = text[: limit * 6 + 200]
    line = _SPACE.sub(" ", _UNSAFE.sub(" ", _ANSI.sub("", head))).strip()
    if len(line) <= limit:
        return line if len(head) == len(text) or not line else line.rstrip(" …") + "…"
    end = limit - 1
    space = line.rfind(" ", end - 24, end + 1)
    end = space if space > 0 else end
    while end > 1 and (
        unicodedata.combining(line[end]) or line[end] in _JOINERS or line[end - 1] in _JOINERS
    ):
        end -= 1
    return line[:end].rstrip(" ,;:、") + "…"


def first_line(text: str, limit: int = QUOTE) -> str:
    """The first line that says something, without Markdown marks."""
    for line in text[:4_000].splitlines():
        plain = line.strip().lstrip("#*->・ ").strip()
        if len(plain) > 2:
            return cut(plain.rstrip(":："), limit)
    return cut(text, limit)


def first_sentence(text: str, limit: int = QUOTE) -> str:
    """The first sentence of a message, or as much as fits."""
    line = cut(_MARKS.sub("", text[:4_000]), max(limit, 400))
    end = re.search(r"[。！？!?](?=.)|\.(?=\s+[A-Z])", line)
    return cut(line[: end.end()] if end and end.end() >= 12 else line, limit)


def without_greeting(text: str) -> str:
    """The text after its opening greeting; '' when it is nothing else."""
    return _GREETING.sub("", text[:4_000].strip(), count=1).strip()


def language_of(texts: Iterable[str]) -> str:
    """`ja` when kana make up at least a twentieth of the letters seen, else `en`."""
    samples = [text[:_SAMPLE] for text in islice(texts, _SAMPLES)]
    kana = sum(len(_KANA.findall(sample)) for sample in samples if not sample.isascii())
    if not kana:
        return "en"
    letters = sum(len(_LETTER.findall(sample)) for sample in samples)
    return "ja" if kana * 20 >= letters else "en"


def plain(text: str) -> str:
    """Folded for comparison: case, width, articles, quotation marks and punctuation do not
    count."""
    folded = unicodedata.normalize("NFKC", text[:4_000]).casefold()
    words = re.sub(r"[^\w\s]|_", " ", folded.replace("'", "").replace("’", "")).split()
    return " ".join(w for w in words if w not in {"the", "a", "an"})
