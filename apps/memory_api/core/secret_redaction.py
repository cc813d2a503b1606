"""Replace secrets in text and JSON by `[secret:kind]`, before text is stored or sent to a model.

The patterns are in `secret_patterns.py`. If the setting is on, personal data
is replaced in the same places by `[pii:kind]` (`personal_data.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple, cast

from pydantic_core import SchemaValidator, core_schema

from memory_api.core.personal_data import PERSONAL_DATA, one_limit
from memory_api.core.secret_patterns import SECRET_PATTERNS, SecretPattern

MIN_SECRET_LENGTH = 16
"""Minimum length of an object key that is checked for secrets. No pattern matches a shorter text.
"""

_NAME_FIELDS = ("name", "key")


class Redacted(NamedTuple):
    text: str
    counts: dict[str, int]
    """Number of replaced secrets by kind."""


def redact(text: str) -> Redacted:
    """Replace all secrets in `text`, and personal data if the setting is on. Redacting the result
    again changes nothing.
    """
    secrets = redact_secrets(text)
    personal = _redact_personal_data(secrets.text)
    return Redacted(personal.text, secrets.counts | personal.counts) if personal.counts else secrets


def redact_secrets(text: str) -> Redacted:
    """Replace all secrets in `text`. Personal data stays."""
    if not _has_secret_hint(text):
        return Redacted(text, {})
    lowered = _lower(text)
    counts: Counter[str] = Counter()
    for pattern in SECRET_PATTERNS:
        haystack = text if pattern.is_case_sensitive else lowered
        if any(hint in haystack for hint in pattern.hints):
            spans = _find_spans(pattern, haystack, text)
            if spans:
                counts[pattern.kind] += len(spans)
                text = _replace_spans(text, spans, f"[secret:{pattern.kind}]")
                lowered = _lower(text)
    return Redacted(text, dict(counts))


def may_contain_secrets(text: str) -> bool:
    """False means that `redact` does not change the text."""
    return _has_secret_hint(text) or _may_contain_personal_data(text)


def _may_contain_personal_data(text: str) -> bool:
    return PERSONAL_DATA.detector is not None and bool(_PERSONAL_HINT.search(text))


def _redact_personal_data(text: str) -> Redacted:
    detector = PERSONAL_DATA.detector
    spans = detector.find(text) if detector and _may_contain_personal_data(text) else []
    if not spans:
        return Redacted(text, {})
    parts: list[str] = []
    previous_end = 0
    for start, end, kind in spans:
        parts += (text[previous_end:start], f"[pii:{kind}]")
        previous_end = end
    counts = Counter(kind for _, _, kind in spans)
    return Redacted("".join((*parts, text[previous_end:])), dict(counts))


def _has_secret_hint(text: str) -> bool:
    """Whether the text contains a hint of any pattern. False means that it has no secrets."""
    if text.isascii():
        return _ANY_HINT.isinstance_python(text)
    try:
        text.encode()
    except UnicodeEncodeError:  # the two patterns cannot read lone surrogates
        return True
    return _ANY_HINT.isinstance_python(text) or _FULL_WIDTH_HINT.isinstance_python(text)


def redact_value(value: Any) -> tuple[Any, dict[str, int]]:
    """Redact JSON-like data: all strings and keys at any depth, and the values of keys such as
    `password`. Returns the data and the number of replacements by kind.

    `metadata.subject` keeps personal data, because an erasure of a person looks for it.
    """
    counts: Counter[str] = Counter()
    with one_limit():
        return _redact_node(value, counts), dict(counts)


def redact_metadata(value: Any) -> tuple[Any, dict[str, int]]:
    """`redact_value` of the value of a field `metadata`."""
    redacted, counts = redact_value({"metadata": value})
    return redacted["metadata"], counts


def _redact_node(value: Any, counts: Counter[str], field: str = "") -> Any:
    if isinstance(value, str):
        text, found = redact(value)
        counts.update(found)
        return text
    if isinstance(value, dict):
        return _redact_object(cast("dict[Any, Any]", value), counts, field)
    if isinstance(value, list):
        return [_redact_node(item, counts) for item in cast("list[Any]", value)]
    return value


def _redact_object(value: dict[Any, Any], counts: Counter[str], field: str) -> dict[Any, Any]:
    """Keys that become equal get a suffix, so that no entry is lost. A `value` next to a `name`, as
    in a list of environment variables, is that of the name.
    """
    redacted: dict[Any, Any] = {}
    named = next((n for n in _NAME_FIELDS if isinstance(value.get(n), str)), None)
    for key, item in value.items():
        is_long = isinstance(key, str) and len(key) >= MIN_SECRET_LENGTH
        may_be_redacted = is_long or PERSONAL_DATA.detector is not None
        name = _redact_node(key, counts) if may_be_redacted else key
        while name in redacted:
            name += "+"
        is_subject = field == "metadata" and key == "subject"
        title = value[named] if named and key == "value" else name
        redacted[name] = _redact_entry(str(title), item, counts, is_subject=is_subject)
    return redacted


def _redact_entry(key: str, value: Any, counts: Counter[str], *, is_subject: bool) -> Any:
    """Redact a value. A string is also matched as `"key": "value"`, for keys such as `password`."""
    if is_subject and isinstance(value, str):
        redacted, secrets = redact_secrets(value)
        counts.update(secrets)
    else:
        redacted = _redact_node(value, counts, key)
    if not isinstance(redacted, str) or "[secret:" in redacted:
        return redacted
    compact = "".join(redacted.split())
    found = redact_secrets(f'"{key}": "{compact}"').counts
    counts.update(found)
    return f"[secret:{next(iter(found))}]" if found else redacted


def _find_spans(pattern: SecretPattern, haystack: str, text: str) -> list[tuple[int, int]]:
    group = "secret" if "secret" in pattern.regex.groupindex else 0
    return [
        match.span(group)
        for match in pattern.regex.finditer(haystack)
        if pattern.is_secret(match, text[match.start(group) : match.end(group)])
    ]


def _replace_spans(text: str, spans: list[tuple[int, int]], replacement: str) -> str:
    parts: list[str] = []
    previous_end = 0
    for start, end in spans:
        parts += (text[previous_end:start], replacement)
        previous_end = end
    return "".join((*parts, text[previous_end:]))


def _lower(text: str) -> str:
    """Lower case in half width, without a change of length. `str.lower` makes two characters of
    "İ".
    """
    if _FULL_WIDTH.search(text):
        text = text.translate(_HALF_WIDTH)
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


_PERSONAL_HINT = re.compile(r"@|\d[\d .()/-]{4}|[\d.]{7}|[0-9A-Fa-f]?::?[0-9A-Fa-f]|[A-Z]{2}\d\d")
"""What every text with personal data contains."""
_ASCII_LOWER = {ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_FULL_WIDTH = re.compile("[\uff01-\uff5e]")
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


def _compile(regex: str) -> SchemaValidator:
    """A regular expression in pydantic's Rust engine, which is much faster than `re`."""
    return SchemaValidator(core_schema.str_schema(pattern=regex, strict=True))


def _compile_hints() -> SchemaValidator:
    """One regular expression for all hints. It takes a tenth of the time of one search per hint."""
    case_sensitive, other = (
        "|".join(
            sorted(
                {
                    hint
                    for pattern in SECRET_PATTERNS
                    if pattern.is_case_sensitive == is_case_sensitive
                    for hint in (
                        [pattern.precise_hint]
                        if pattern.precise_hint
                        else map(re.escape, pattern.hints)
                    )
                }
            )
        )
        for is_case_sensitive in (True, False)
    )
    return _compile(f"{case_sensitive}|(?i:{other})")


_ANY_HINT = _compile_hints()
_FULL_WIDTH_HINT = _compile("[\uff0d\uff0f\uff1d\uff21-\uff3a\uff41-\uff5a]")
"""A letter, "-", "/" or "=" in full width. Hints that need other punctuation contain it."""
