"""How far a model is believed. Whoever wrote the trace may have written orders into it, and a
gullible model follows them: so what it says is checked against what it was shown. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import structlog

from apps.memory_api.core.redaction import redact
from apps.memory_api.playbook.citations import resolve
from apps.memory_api.reflection.response import BulletVerdict

log = structlog.get_logger()


def repeats(said: str, shown: str) -> bool:
    """Whether this stands in what the model was shown word for word: then its author wrote it, and
    not the model.
    """
    return _folded(said) in _folded(shown)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def sound(
    verdicts: Iterable[BulletVerdict], keys: Collection[str], shown: str
) -> list[BulletVerdict]:
    """The verdicts that may be counted, without secrets: on the bullets with these keys only, one
    each, with a reason of the model's own. Who says two things of a bullet has said nothing.
    """
    given = list(verdicts)
    meant = resolve((verdict.key for verdict in given), keys)
    folded = _folded(shown)
    told: dict[str, BulletVerdict] = {}
    torn: set[str] = set()
    for verdict in given:
        key = meant.get(verdict.key)
        if key is None or _folded(verdict.reason) in folded:
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
