"""How far a model is believed. Whoever wrote the trace may have written orders into it, and a
gullible model follows them: so what it says is checked against what it was shown. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import pairwise

import structlog

from apps.memory_api.core.redaction import redact
from apps.memory_api.playbook.citations import resolve
from apps.memory_api.playbook.recognise import recognise
from apps.memory_api.reflection.response import BulletVerdict
from apps.memory_api.reflection.schemas import ReflectionContext
from apps.memory_api.traces.schemas import EventType

log = structlog.get_logger()

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?;])[\s\"']+|[。！？\n]+")
_WORD = 8
"""Characters of a sentence at least, where words are not told apart."""
_OWN = (EventType.SYSTEM_EVENT, EventType.TOOL_CALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def repeats(said: str, shown: str) -> bool:
    """Whether this stands in what the model was shown word for word, also as JSON writes it: then
    its author wrote it, and not the model.
    """
    return _folded(said) in _read(shown)


def written(context: ReflectionContext) -> list[str]:
    """What people and tools wrote into a run, and what the agent said to that. Its instructions are
    its operator's, and what it called is what it did.
    """
    said = [event.content for event in context.events if event.event_type not in _OWN]
    return [*said, context.task_description or "", context.task_goal or ""]


def borrowed(said: str, given: Iterable[str]) -> bool:
    """Whether any sentence of a lesson is what somebody wrote into the run: word for word, or with
    words left out and their order turned round. Such a lesson is an order, or nothing new.
    """
    texts = [layer for text in given for layer in _layers(text)]
    folded = "\n".join(map(_folded, texts))
    if _folded(said) in folded:
        return True
    passages = {str(n): passage for n, passage in enumerate(_passages(texts))}
    return any(recognise(sentence, passages) is not None for sentence in _sentences(said))


def _passages(texts: Iterable[str]) -> set[str]:
    """The sentences of texts, alone and with the next."""
    found: set[str] = set()
    for text in texts:
        sentences = _sentences(text)
        found.update(sentences)
        found.update(map(" ".join, pairwise(sentences)))
    return found


def _sentences(text: str) -> list[str]:
    return [part for part in _SENTENCE.split(text) if len(part.split()) > 1 or len(part) > _WORD]


def _read(shown: str) -> str:
    """What was shown, and the same without one and two layers of JSON's escapes."""
    return "\n".join(map(_folded, _layers(shown)))


def _layers(shown: str) -> list[str]:
    plain = _unescaped(shown)
    return list(dict.fromkeys((shown, plain, _unescaped(plain))))


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
