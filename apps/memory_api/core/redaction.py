"""Secrets in text become `[secret:kind]`, before anything is stored and before anything is shown to
a model. What a secret looks like: `secret_rules.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple, cast

from pydantic_core import SchemaValidator, core_schema

from apps.memory_api.core.secret_rules import RULES, Rule

SHORTEST_KEY = 16
"""Characters of a name that may be a secret itself; no pattern takes less for one."""


class Redacted(NamedTuple):
    """`kinds` counts what was taken out, by kind."""

    text: str
    kinds: dict[str, int]


def redact(text: str) -> Redacted:
    """The text without secrets, and how many of each kind there were. Redacting twice changes
    nothing more.
    """
    if not may_hold_secrets(text):
        return Redacted(text, {})
    lowered = _lower(text)
    kinds: Counter[str] = Counter()
    for rule in RULES:
        haystack = text if rule.exact else lowered
        if any(hint in haystack for hint in rule.hints):
            spans = _spans(rule, haystack, text)
            if spans:
                kinds[rule.kind] += len(spans)
                text = _cut_out(text, spans, f"[secret:{rule.kind}]")
                lowered = _lower(text)
    return Redacted(text, dict(kinds))


def may_hold_secrets(text: str) -> bool:
    """Whether any rule's hint is in the text. False is certain."""
    try:
        text.encode()
    except UnicodeEncodeError:  # with half a surrogate pair, which `_ANY_HINT` cannot read
        return True
    return _ANY_HINT.isinstance_python(text)


def redact_value(value: Any) -> tuple[Any, dict[str, int]]:
    """The same for JSON-like data: every string at any depth, keys too, and whatever stands under a
    key such as `password`. Numbers and shape stay."""
    kinds: Counter[str] = Counter()
    return _walk(value, kinds), dict(kinds)


def _walk(value: Any, kinds: Counter[str]) -> Any:
    if isinstance(value, str):
        text, found = redact(value)
        kinds.update(found)
        return text
    if isinstance(value, dict):
        return _walk_object(cast("dict[Any, Any]", value), kinds)
    if isinstance(value, list):
        return [_walk(item, kinds) for item in cast("list[Any]", value)]
    return value


def _walk_object(value: dict[Any, Any], kinds: Counter[str]) -> dict[Any, Any]:
    """Two keys that become one stay two."""
    clean: dict[Any, Any] = {}
    for key, item in value.items():
        name = _walk(key, kinds) if isinstance(key, str) and len(key) >= SHORTEST_KEY else key
        while name in clean:
            name += "+"
        clean[name] = _under(str(name), item, kinds)
    return clean


def _under(key: str, value: Any, kinds: Counter[str]) -> Any:
    """A value whose key may say what it is: read as `"key": "value"`."""
    clean = _walk(value, kinds)
    if not isinstance(clean, str) or "[secret:" in clean:
        return clean
    compact = "".join(clean.split())
    found = redact(f'"{key}": "{compact}"').kinds
    kinds.update(found)
    return f"[secret:{next(iter(found))}]" if found else clean


def _spans(rule: Rule, haystack: str, text: str) -> list[tuple[int, int]]:
    group = "secret" if "secret" in rule.pattern.groupindex else 0
    return [
        match.span(group)
        for match in rule.pattern.finditer(haystack)
        if rule.wanted(match, text[match.start(group) : match.end(group)])
    ]


def _cut_out(text: str, spans: list[tuple[int, int]], instead: str) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], instead)
        end = stop
    return "".join((*parts, text[end:]))


def _lower(text: str) -> str:
    """Lower case, every character in its old place ("İ" would become two)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


_ASCII_LOWER = {ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _any_hint() -> SchemaValidator:
    """One look for all hints, by the regular expressions of pydantic's core: a tenth of the time of
    a look for each.
    """
    exact = {re.escape(hint) for rule in RULES if rule.exact for hint in rule.hints}
    folded = {re.escape(hint) for rule in RULES if not rule.exact for hint in rule.hints}
    pattern = f"{'|'.join(sorted(exact))}|(?i:{'|'.join(sorted(folded))})"
    return SchemaValidator(core_schema.str_schema(pattern=pattern, strict=True))


_ANY_HINT = _any_hint()
