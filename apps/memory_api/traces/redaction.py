"""Redacts traces before they are stored. Copies only what contains a secret.

IDs and bullet keys are not redacted, because callers refer to them. A first pass over all texts
together decides whether a detailed pass is needed, which is rare: the first pass takes 0.25 s for
551 real traces, and none of them needed the second.

Redaction of personal data has no first pass and takes longer, up to 30 s. The functions
`…_isolated` redact a large body in a process of its own, and before its transaction opens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from pydantic import BaseModel

from memory_api.core.isolated_work import run_isolated
from memory_api.core.personal_data import PERSONAL_DATA, PersonalDataOptions, one_limit
from memory_api.core.secret_redaction import (
    MIN_SECRET_LENGTH,
    may_contain_secrets,
    redact,
    redact_metadata,
    redact_value,
)
from memory_api.traces.schemas import (
    AppendEventsRequest,
    CloseTraceRequest,
    CreateTraceRequest,
    ErrorInfo,
    Event,
    RecordOutcomeRequest,
)
from memory_api.traces.tools import ToolDefinition

Fields = Iterable[tuple[Iterable[BaseModel], Iterable[str]]]
"""Models, and the names of those fields of them that are redacted."""
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Change = TypeVar("Change", AppendEventsRequest, RecordOutcomeRequest, CloseTraceRequest)
"""A request that changes a stored trace."""

MAX_REDACTED_INLINE = 64 * 1024
"""Characters whose personal data is redacted at once; it takes up to 50 ms."""
MAX_SEARCHED_INLINE = 1024 * 1024
"""Characters that may contain secrets and are redacted at once. Hostile ones take 150 ms."""
REDACTED_KEY = "redacted"
"""The key of a trace's metadata with the number of redacted secrets by kind."""

_TRACE = (
    "task_description",
    "task_goal",
    "error",
    "query",
    "generated_answer",
    "reasoning_steps",
    "ground_truth",
    "test_report",
    "tools",
    "metadata",
)
_TOOL = ("name", "description")
_EVENT = ("content", "metadata", "error", "tool_name", "agent")
_CHANGE: Mapping[type[BaseModel], Sequence[str]] = {
    AppendEventsRequest: ("events", "tools"),
    RecordOutcomeRequest: ("error", "ground_truth", "test_report"),
    CloseTraceRequest: ("error",),
}
_ERROR = ("error_message", "context")
_PASS_CHARACTERS = 1024 * 1024
"""Characters that one pass checks together, roughly."""
_SEPARATOR = "\n" * 17
"""Longer than the white space in any secret pattern, so that no match spans two texts."""


@dataclass(frozen=True)
class RedactedChange(Generic[Change]):
    """A request without secrets, and the number of its secrets by kind."""

    body: Change
    counts: Counter[str]


def redact_trace(body: CreateTraceRequest) -> CreateTraceRequest:
    """The trace without secrets. Its metadata counts them by kind."""
    if not _may_contain_secrets([([body], _TRACE), (body.events, _EVENT)]):
        return body
    kinds = Counter[str]()
    clean = redact_fields(body, _TRACE, kinds)
    events = [redact_fields(event, _EVENT, kinds) for event in body.events]
    if not kinds:  # the first pass had a false positive
        return body
    metadata = count_redactions(clean.metadata, kinds)
    return clean.model_copy(update={"events": events, "metadata": metadata})


async def redact_trace_isolated(body: CreateTraceRequest, tenant_id: UUID) -> CreateTraceRequest:
    """`redact_trace`. A large trace does not hold the event loop. Raises `WorkTimeout`."""
    fields = [([body], _TRACE), (body.events, _EVENT)]
    return await _run(partial(redact_trace, body), fields, tenant_id)


async def redact_each_event_isolated(
    events: Sequence[Event], tenant_id: UUID
) -> Sequence[tuple[Event, Counter[str]]]:
    """The events without secrets, each with the number of its secrets by kind. As
    `redact_trace_isolated`.
    """
    return await _run(partial(_redact_each_event, events), [(events, _EVENT)], tenant_id)


def redact_change(body: Change) -> RedactedChange[Change]:
    kinds = Counter[str]()
    return RedactedChange(redact_fields(body, _CHANGE[type(body)], kinds), kinds)


async def redact_change_isolated(body: Change, tenant_id: UUID) -> RedactedChange[Change]:
    """`redact_change`, as `redact_trace_isolated`."""
    names = [name for name in _CHANGE[type(body)] if name != "events"]
    events: Sequence[Event] = getattr(body, "events", ())
    fields = [([body], names), (events, _EVENT)]
    return await _run(partial(redact_change, body), fields, tenant_id)


async def _run(work: Callable[[], T], fields: Fields, tenant_id: UUID) -> T:
    size = _text_size(fields)
    if (detector := PERSONAL_DATA.detector) is not None:
        isolated = partial(_run_with_options, detector.options, work)
        return await run_isolated(isolated, size, tenant_id, max_inline_size=MAX_REDACTED_INLINE)
    if size <= MAX_SEARCHED_INLINE:
        return work()
    if not await asyncio.to_thread(_has_secret_hints, fields):
        return await asyncio.to_thread(work)
    return await run_isolated(work, size, tenant_id)


def _run_with_options(options: PersonalDataOptions, work: Callable[[], T]) -> T:
    """Runs in a new process, which does not know the settings."""
    PERSONAL_DATA.configure(options)
    with one_limit():
        return work()


def redact_events(events: Sequence[Event], kinds: Counter[str]) -> Sequence[Event]:
    """The events without secrets. Adds the number of secrets to `kinds`."""
    if not _may_contain_secrets([(events, _EVENT)]):
        return events
    return [redact_fields(event, _EVENT, kinds) for event in events]


def _redact_each_event(events: Sequence[Event]) -> Sequence[tuple[Event, Counter[str]]]:
    if not _may_contain_secrets([(events, _EVENT)]):
        return [(event, Counter()) for event in events]
    redacted: list[tuple[Event, Counter[str]]] = []
    for event in events:
        kinds = Counter[str]()
        redacted.append((redact_fields(event, _EVENT, kinds), kinds))
    return redacted


def redact_tools(tools: Sequence[ToolDefinition], kinds: Counter[str]) -> list[ToolDefinition]:
    """The tools without secrets. Adds the number of secrets to `kinds`."""
    return [redact_fields(tool, _TOOL, kinds) for tool in tools]


def count_redactions(metadata: Mapping[str, Any], kinds: Mapping[str, int]) -> dict[str, Any]:
    """The metadata with these numbers of secrets added."""
    if not kinds:
        return dict(metadata)
    stored = metadata.get(REDACTED_KEY)
    before = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    counts = {kind: n for kind, n in before.items() if isinstance(n, int)}
    return {**metadata, REDACTED_KEY: dict(Counter(counts) + Counter(kinds))}


def redact_fields(model: M, names: Iterable[str], kinds: Counter[str]) -> M:
    """The model without secrets in these fields. Adds the number of secrets to `kinds`."""
    changed: dict[str, Any] = {}
    for name in names:
        value: Any = getattr(model, name)
        field_kinds = Counter[str]()
        clean: Any
        if isinstance(value, ErrorInfo):
            clean = redact_fields(value, _ERROR, field_kinds)
        elif name == "events":
            clean = redact_events(value, field_kinds)
        elif name == "tools":
            clean = redact_tools(value, field_kinds)
        elif name == "metadata":
            clean, value_kinds = redact_metadata(value)
            field_kinds.update(value_kinds)
        else:
            clean, value_kinds = redact_value(value)
            field_kinds.update(value_kinds)
        if field_kinds:
            changed[name] = clean
            kinds.update(field_kinds)
    return model.model_copy(update=changed) if changed else model


def _may_contain_secrets(fields: Fields) -> bool:
    """Checks all texts of these fields in a few passes. False: no text contains a secret. True: one
    may, or personal data is redacted, which needs the detailed pass.
    """
    if PERSONAL_DATA.detector is not None:
        return True
    return any(redact(_SEPARATOR.join(texts)).counts for texts in _passes(fields))


def _has_secret_hints(fields: Fields) -> bool:
    """Whether these fields need a search for secrets. Reads 30 MB in 50 ms."""
    return any(may_contain_secrets(_SEPARATOR.join(texts)) for texts in _passes(fields))


def _text_size(fields: Fields) -> int:
    return sum(len(text) for texts in _passes(fields) for text in texts)


def _passes(fields: Fields) -> Iterator[Sequence[str]]:
    """All texts of these fields, in parts of about `_PASS_CHARACTERS`."""
    texts: list[str] = []
    size = 0
    for models, names in fields:
        for model in models:
            known = len(texts)
            for name in names:
                if value := getattr(model, name):
                    _collect_texts(value, texts)
            size += sum(map(len, texts[known:]))
            if size > _PASS_CHARACTERS:
                yield texts
                texts, size = [], 0
    yield texts


def _collect_texts(value: Any, texts: list[str]) -> None:
    """Appends every string, and strings in an object also with their key, as in `redact_value`."""
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, ErrorInfo):
        _collect_texts([value.error_message, value.context], texts)
    elif isinstance(value, ToolDefinition):
        _collect_texts([value.name, value.description], texts)
    elif isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        for key, item in pairs.items():
            if isinstance(key, str) and len(key) >= MIN_SECRET_LENGTH:
                texts.append(key)
            if isinstance(item, str):
                texts.append(item)
                texts.append(f'"{key}": "{"".join(item.split())}"')
            else:
                _collect_texts(item, texts)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _collect_texts(item, texts)
