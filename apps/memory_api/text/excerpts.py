"""Short, safe excerpts of untrusted text, text folded for comparison, and language detection."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import islice

MAX_EXCERPT_LENGTH = 160
_SPACE = re.compile(r"\s+")
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b\u2028-\u202e\u2066-\u2069\ufeff]"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d]")
_LETTER = re.compile(r"[^\W\d_]")
_JOINERS = "\u200d\ufe0e\ufe0f"
_GREETING = re.compile(
    r"^(?:(?:hi|hello|hey|umm?|good (?:morning|afternoon|evening))(?: there)?[!,.\s]+"
    r"|(?:こんにち[はわ]|こんばん[はわ]|おはようございます|はじめまして|すみません|よろしくお願い(?:いた|致)?します|お願いします)[。、!！\s]*)+",
    re.IGNORECASE,
)
_SAMPLE_LENGTH = 1_500
_MAX_SAMPLES = 40


def excerpt(text: str, limit: int = MAX_EXCERPT_LENGTH) -> str:
    """Convert to one line of at most `limit` characters, with … if truncated. Does not split
    composed characters.
    """
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


def excerpt_differences(a: str, b: str, limit: int = 80) -> tuple[str, str]:
    """Two different texts as one line each, of about `limit` characters, that contain the place
    where they start to differ.
    """
    pairs = enumerate(zip(a, b, strict=False))
    start = next((n for n, (x, y) in pairs if x != y), min(len(a), len(b)))
    begin = max(0, start - limit // 4) if max(len(a), len(b)) > limit else 0
    return _window(a, begin, limit), _window(b, begin, limit)


def _window(text: str, begin: int, limit: int) -> str:
    lead = "…" if begin else ""
    return f"{lead}{excerpt(text[begin:], limit)}"


def first_line(text: str, limit: int = MAX_EXCERPT_LENGTH) -> str:
    """The first line with more than two characters, without Markdown marks."""
    for line in text[:4_000].splitlines():
        plain = line.strip().lstrip("#*->・ ").strip()
        if len(plain) > 2:
            return excerpt(plain.rstrip(":："), limit)
    return excerpt(text, limit)


def without_greeting(text: str) -> str:
    """The text after its opening greeting; '' if there is nothing else."""
    return _GREETING.sub("", text[:4_000].strip(), count=1).strip()


def detect_language(texts: Iterable[str]) -> str:
    """`ja` if at least 5 % of the letters in a sample of the texts are kana, else `en`."""
    samples = [text[:_SAMPLE_LENGTH] for text in islice(texts, _MAX_SAMPLES)]
    kana = sum(len(_KANA.findall(sample)) for sample in samples if not sample.isascii())
    if not kana:
        return "en"
    letters = sum(len(_LETTER.findall(sample)) for sample in samples)
    return "ja" if kana * 20 >= letters else "en"


def fold_for_comparison(text: str) -> str:
    """Remove differences in case, width, articles, quotation marks and punctuation."""
    folded = unicodedata.normalize("NFKC", text[:4_000]).casefold()
    words = re.sub(r"[^\w\s]|_", " ", folded.replace("'", "").replace("’", "")).split()
    return " ".join(w for w in words if w not in {"the", "a", "an"})
