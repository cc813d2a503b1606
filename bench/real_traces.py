"""Real traces, which have fields of their own, as the API takes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from memory_api.core.schemas import accepted_names
from memory_api.traces.schemas import CreateTraceRequest, Event


def to_trace(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The trace, with fields that the API does not know in `metadata`."""
    trace = _move_unknown(raw, accepted_names(CreateTraceRequest))
    return trace | {"events": [to_event(event) for event in raw["events"]]}


def to_event(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The event, with fields that the API does not know in `metadata`."""
    return _move_unknown(raw, accepted_names(Event))


def _move_unknown(raw: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    own = {name: value for name, value in raw.items() if name not in known}
    fields = {name: value for name, value in raw.items() if name in known}
    return fields | {"metadata": own | (raw.get("metadata") or {})}
