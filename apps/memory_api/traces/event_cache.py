"""The events of closed traces that this process read last.

The steps of a learning chain follow each other within seconds and need the same events, so each
chain reads them from the database once. The last step that needs them drops them. A chain may
end elsewhere, so events that no step needed for a minute are dropped, too. The events of a closed
trace never change; whether they were deleted is known from the row of the trace, which every step
reads.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.isolated_work import TraceTooLarge
from memory_api.traces.queries import list_events, measure_events, to_events
from memory_api.traces.schemas import Event
from memory_api.traces.tables import TraceRow

MAX_CACHED_CHARACTERS = 8_000_000
MAX_CHARACTERS_PER_TRACE = 2_000_000
CHARACTERS_PER_EVENT = 500
"""Added to the length of an event's content, for its other fields."""
CACHE_SECONDS = 60.0
MAX_TRACE_BYTES = 64 * 1024 * 1024
"""Bytes of the events of a trace that learning reads. A request sends at most half of it; an open
trace can grow further.
"""

_Key = tuple[UUID, UUID]


@dataclass
class _Entry:
    events: Sequence[Event]
    size: int
    used_at: float


class EventCache:
    """Least recently used first out, limited by the length of the contents and the time since the
    last use. For one event loop. `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    async def load(self, session: AsyncSession, trace: TraceRow) -> Sequence[Event]:
        """The events of a trace of the session's tenant, in order. Treat them as read-only. Raises
        `TraceTooLarge` before it reads more than `MAX_TRACE_BYTES`.
        """
        now = self._clock()
        self._drop_unused(now - CACHE_SECONDS)
        key = (current_tenant_id(session), trace.id)
        if trace.state != "closed" or trace.events_deleted_at is not None:
            self._remove(key)
            return await _read(session, trace)
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            entry.used_at = now
            return entry.events
        events = await _read(session, trace)
        size = sum(len(event.content) + CHARACTERS_PER_EVENT for event in events)
        if size <= MAX_CHARACTERS_PER_TRACE and len(events) == trace.event_count:
            self._remove(key)  # another step read it meanwhile
            self._entries[key] = _Entry(events, size, now)
            self._size += size
            while self._size > MAX_CACHED_CHARACTERS:
                self._remove(next(iter(self._entries)))
        return events

    def drop(self, tenant_id: UUID, trace_id: UUID | None) -> None:
        """Drop the events of a trace, because no further step of its chain needs them."""
        if trace_id is not None:
            self._remove((tenant_id, trace_id))

    def _drop_unused(self, since: float) -> None:
        while self._entries and next(iter(self._entries.values())).used_at < since:
            self._remove(next(iter(self._entries)))

    def _remove(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        self._size -= entry.size if entry is not None else 0


async def _read(session: AsyncSession, trace: TraceRow) -> Sequence[Event]:
    came_at_once = trace.closed_at == trace.created_at  # the request had a limit
    if not came_at_once and await measure_events(session, trace.id) > MAX_TRACE_BYTES:
        raise TraceTooLarge
    return to_events(await list_events(session, trace.id))


EVENT_CACHE = EventCache()
