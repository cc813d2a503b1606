"""How far a model is believed. Whoever wrote the trace may have written orders into it, and a
gullible model follows them: so what it says is checked against what it was shown. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import structlog

from apps.memory_api.core.redaction import redact
from apps.memory_api.playbook.citations import resolve
from apps.memory_api.reflection.response import BulletVerdict

log = structlog.get_logger()

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def repeats(said: str, shown: str) -> bool:
    """Whether this stands in what the model was shown word for word, also as JSON writes it: then
    its author wrote it, and not the model.
    """
    return _folded(said) in _read(shown)


def _read(shown: str) -> str:
    """What was shown, and the same without one and two layers of JSON's escapes."""
    plain = _unescaped(shown)
    return "\n".join(map(_folded, dict.fromkeys((shown, plain, _unescaped(plain)))))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]), text)


def _folded(text: str) -> str:
    # Halves of a pair that JSON escapes apart come together again.
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(whole.casefold().split())


def sound(
    verdicts: Iterable[BulletVerdict], keys: Collection[str], shown: str
) -> list[BulletVerdict]:
    """The verdicts that may be counted, without secrets: on the bullets with these keys only, one
    each, with a reason of the model's own. Who says two things of a bullet has said nothing.
    """
    given = list(verdicts)
    meant = resolve((verdict.key for verdict in given), keys)
    read = _read(shown)
    told: dict[str, BulletVerdict] = {}
    torn: set[str] = set()
    for verdict in given:
        key = meant.get(verdict.key)
        if key is None or _folded(verdict.reason) in read:
            log.warning("verdict_not_counted", key=verdict.key, known=key is not None)
            continue
        first = told.setdefault(key, verdict)
        if first.tag != verdict.tag:
            torn.add(key)
    return [
        BulletVerdict(key=key, tag=verdict.tag, reason=redact(verdict.reason).text)
        for key, verdict in told.items()
        if key not in torn
    ]
