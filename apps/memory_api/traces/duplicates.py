"""Detects traces that were sent again without an `external_id`. Duplicates are not reflected on and
do not affect statistics.

Two traces with different external IDs are never duplicates. Other traces of the same task are
duplicates if they have the same events in the same order with nearly the same texts. IDs and times
are ignored. Calibration: 551 traces of real runs were sent again with changed words and dates. The
lowest mean similarity was 0.95, the lowest similarity of one event 0.67. In the same data, 21 pairs
of different attempts had the same calls in the same order; 4 of them would be taken for duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.runs.chain import EVALUATE, REFLECT
from memory_api.runs.queries import latest_run
from memory_api.runs.tables import RunRow
from memory_api.text.similarity import wording_similarity
from memory_api.traces.queries import (
    find_duplicate_candidates,
    list_events,
    list_trace_identities,
)
from memory_api.traces.tables import TraceEventRow, TraceRow

MIN_COMPARED_BYTES = 300
"""Shorter traces are never duplicates, because different attempts are often identical."""
MIN_MEAN_SIMILARITY, MIN_EVENT_SIMILARITY = 0.95, 0.6
"""Minimum similarity of the events, 0..1: the mean, and that of each event."""
MIN_INDEPENDENT_TRACES = 2
"""Independent traces that confirm advice with a quotation."""
MAX_COMPARED_TRACES = 8


async def mark_if_duplicate(session: AsyncSession, trace: TraceRow) -> RunRow | None:
    """Sets `duplicate_of` if the trace is a duplicate, and returns the learning run of the
    original. Returns None for a new trace, and if the run of the original failed.
    """
    for other_id in await find_duplicate_candidates(session, trace):
        run = await latest_run(session, other_id, EVALUATE, REFLECT)
        if run is None or run.state in ("failed", "dead"):
            continue
        events = await list_events(session, trace.id)
        other_events = await list_events(session, other_id)
        if await asyncio.to_thread(are_same_events, events, other_events):
            trace.duplicate_of = other_id
            return run
    return None


def are_same_events(first: Sequence[TraceEventRow], second: Sequence[TraceEventRow]) -> bool:
    """Whether both are the events of the same agent run."""
    if [_signature(event) for event in first] != [_signature(event) for event in second]:
        return False
    if sum(len(event.content.encode()) for event in first) < MIN_COMPARED_BYTES:
        return False
    scores: list[float] = []
    for event, other in zip(first, second, strict=True):
        same = event.content == other.content
        scores.append(1.0 if same else wording_similarity(event.content, other.content))
        if scores[-1] < MIN_EVENT_SIMILARITY:
            return False
    return sum(scores) >= MIN_MEAN_SIMILARITY * len(scores)


def _signature(event: TraceEventRow) -> tuple[str, str | None, str | None]:
    return event.event_type, event.tool_name, event.agent


async def count_independent_traces(session: AsyncSession, trace_ids: Collection[UUID]) -> int:
    """How many of these traces are agent runs of their own.

    Not counted again: a trace that was sent again, a part of the same run (`parent_id`) or of the
    same session, a trace with the same events, whatever its ID and outcome, and another report of
    the same run: its agent sent it itself, or it has the same request and events of the same time.
    Numbers and spacing are ignored. The newest `MAX_COMPARED_TRACES` are compared.
    """
    groups: list[set[object]] = []
    for row in await list_trace_identities(session, trace_ids, MAX_COMPARED_TRACES):
        others = {row.duplicate_of, row.parent_id, row.session_name, row.events_hash}
        identity: set[object] = {row.id, *others, *row.reported_ids} - {None}
        same = [group for group in groups if group & identity]
        groups = [group for group in groups if group not in same]
        groups.append(identity.union(*same))
    return len(groups)
