"""The events of closed traces that this process read last.

The steps of a learning chain follow each other within seconds and need the same events, so each
chain reads them from the database once. The events of a closed trace never change; whether they
were deleted is known from the row of the trace, which every step reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.db import current_tenant_id
from apps.memory_api.core.isolated_work import TraceTooLarge
from apps.memory_api.traces.queries import list_events, measure_events
from apps.memory_api.traces.tables import TraceEventRow, TraceRow

MAX_CACHED_CHARACTERS = 8_000_000
MAX_CHARACTERS_PER_TRACE = 2_000_000
CHARACTERS_PER_EVENT = 500
"""Added to the length of an event's content, for its other fields."""
MAX_TRACE_BYTES = 64 * 1024 * 1024
"""Bytes of the events of a trace that learning reads. A request sends at most half of it; an open
trace can grow further.
"""

_Key = tuple[UUID, UUID]


class EventCache:
    """Least recently used first out, limited by the length of the contents. For one event loop."""

    def __init__(self) -> None:
        self._events: OrderedDict[_Key, tuple[Sequence[TraceEventRow], int]] = OrderedDict()
        self._size = 0

    async def load(self, session: AsyncSession, trace: TraceRow) -> Sequence[TraceEventRow]:
        """The events of a trace of the session's tenant, in order. Treat them as read-only. Raises
        `TraceTooLarge` before it reads more than `MAX_TRACE_BYTES`.
        """
        key = (current_tenant_id(session), trace.id)
        if trace.state != "closed" or trace.events_deleted_at is not None:
            self._remove(key)
            return await _read(session, trace)
        if key in self._events:
            self._events.move_to_end(key)
            return self._events[key][0]
        rows = await _read(session, trace)
        size = sum(len(row.content) + CHARACTERS_PER_EVENT for row in rows)
        if size <= MAX_CHARACTERS_PER_TRACE and len(rows) == trace.event_count:
            for row in rows:
                session.expunge(row)  # a rollback of this session would make the rows unreadable
            self._events[key] = (rows, size)
            self._size += size
            while self._size > MAX_CACHED_CHARACTERS:
                self._remove(next(iter(self._events)))
        return rows

    def _remove(self, key: _Key) -> None:
        _, size = self._events.pop(key, ((), 0))
        self._size -= size


async def _read(session: AsyncSession, trace: TraceRow) -> Sequence[TraceEventRow]:
    came_at_once = trace.closed_at == trace.created_at  # the request had a limit
    if not came_at_once and await measure_events(session, trace.id) > MAX_TRACE_BYTES:
        raise TraceTooLarge
    return await list_events(session, trace.id)


EVENT_CACHE = EventCache()
