"""The tools that a run called, in order: runs with the same ones were handled in the same way."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby

from memory_api.trace_analysis.failures import detect_failure
from memory_api.traces.schemas import Event, EventType


def call_sequence(events: Sequence[Event]) -> bytes | None:
    """A hash of the names of the called tools in order, repetitions in a row counted once. None if
    a call failed or an error occurred: then the run had something to recover from.
    """
    if any(e.event_type is EventType.ERROR_EVENT or detect_failure(e) for e in events):
        return None
    calls = [e.tool_name or "" for e in events if e.event_type is EventType.TOOL_CALL]
    names = "\0".join(name for name, _ in groupby(calls))
    return hashlib.sha256(names.encode()).digest()[:16]
