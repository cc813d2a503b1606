"""Stored events as wire events."""

from __future__ import annotations

from collections.abc import Sequence

from apps.memory_api.traces.schemas import Event, EventType
from apps.memory_api.traces.tables import TraceEvent


def as_events(rows: Sequence[TraceEvent]) -> list[Event]:
    """Rows as wire events; they were validated when they came in."""
    return [
        Event.model_construct(
            event_id=row.event_id,
            event_type=EventType(row.event_type),
            content=row.content,
            timestamp=row.timestamp,
            metadata=row.metadata_,
            tool_name=row.tool_name,
            error=row.error,
            agent=row.agent,
        )
        for row in rows
    ]
