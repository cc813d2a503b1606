"""Server-sent events of agent runs. One connection per process reads for all streams.

PostgreSQL notifies it of new events. It then loads what is new for all streams that were notified
meanwhile, with one statement per tenant: under load, more streams share a statement, and none waits
for a connection of the pool.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

import asyncpg
import structlog

from memory_api.auth.identity import Identity
from memory_api.core.after_commit import channel_name
from memory_api.core.db import Sessions, tenant_transaction
from memory_api.core.db_errors import to_public_error
from memory_api.core.errors import ServiceUnavailable
from memory_api.grace import queries

log = structlog.get_logger()

POLL_SECONDS = 1.0
"""At this interval all streams are read, in case a notification is lost."""
PAGE_EVENTS = 200
"""Events that are loaded for one stream at a time."""
STREAMS_PER_STATEMENT = 200
KEY_CHECK_SECONDS = 5.0
"""At this interval the API keys of all streams are checked. The streams of a key that was revoked,
or whose tenant was suspended, end."""
LONG_POLL_SECONDS = 3.0
KEEP_ALIVE_SECONDS = 15.0
"""After this time without an event, a stream sends a comment: proxies close silent connections, and
only a write finds out that the client is gone.
"""
STOPPED = ("waiting", "done", "failed", "cancelled")
"""States in which a stream ends once all events are sent."""


@dataclass(frozen=True)
class AgentEvent:
    """One event of an agent run."""

    number: int
    type: str
    data: Mapping[str, Any]
    created_at: datetime


@dataclass(eq=False)
class EventStream:
    """What one reader of an agent run has not read yet. `EventFeed` fills it."""

    tenant_id: UUID
    key_id: UUID
    agent_run_id: UUID
    after: int
    """The number of the last event that was loaded."""
    events: Sequence[AgentEvent] = ()
    project_id: str | None = None
    """None if there is no such agent run."""
    state: str | None = None
    event_count: int = 0
    is_stale: bool = True
    """Whether there may be more to load."""
    error: Exception | None = None
    is_revoked: bool = False
    """Whether its key is no longer valid."""
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever something was loaded, or could not be."""

    @property
    def has_ended(self) -> bool:
        """Whether no event follows those that are loaded, until a person answers."""
        if self.is_revoked:
            return True
        return self.state is None or (self.state in STOPPED and self.after >= self.event_count)

    def take(self) -> Sequence[AgentEvent]:
        """The events that were loaded since the last call."""
        taken, self.events = self.events, ()
        self.loaded.clear()
        return taken

    def fill(self, rows: Sequence[asyncpg.Record]) -> None:
        """Add what `load_progress` found."""
        self.state = rows[0]["state"] if rows else None
        self.project_id = rows[0]["project_id"] if rows else None
        self.event_count = rows[0]["event_count"] if rows else 0
        self.events = [
            AgentEvent(row["number"], row["type"], row["data"], row["created_at"])
            for row in rows
            if row["number"] is not None
        ]
        if self.events:
            self.after = self.events[-1].number
        self.is_stale = len(self.events) == PAGE_EVENTS
        self.error = None
        self.loaded.set()


class EventFeed:
    """Loads events for all streams of this process. It holds a connection only while there are
    streams.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._streams: WeakSet[EventStream] = WeakSet()  # one that is never read just disappears
        self._notified: set[str] = set()
        self._news = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None
        self._has_read = False
        """Whether the present connection has read."""

    async def open(self, caller: Identity, agent_run_id: UUID, after: int) -> EventStream:
        """A stream of the events after this number, with what there is now. Close it in the end.
        Raises `DatabaseUnavailable`.
        """
        stream = EventStream(caller.tenant_id, caller.key_id, agent_run_id, after)
        self._streams.add(stream)
        self._news.set()
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read_all())
        await stream.loaded.wait()
        if stream.error is not None:
            self.close(stream)
            raise stream.error
        return stream

    def take(self, stream: EventStream) -> Sequence[AgentEvent]:
        """The events that were loaded for the stream, so that the next ones can be."""
        taken = stream.take()
        if stream.is_stale:
            self._news.set()
        return taken

    def close(self, stream: EventStream) -> None:
        self._streams.discard(stream)
        self._news.set()

    def _wake(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        self._notified.add(str(payload))
        self._news.set()

    async def _read_all(self) -> None:
        """Read until there is no stream. If the connection is lost and there is no other one, all
        streams end with the error.
        """
        while self._streams:
            self._has_read = False
            try:
                async with self._sessions.listening_connection() as connection:
                    connection.add_termination_listener(lambda _: self._news.set())
                    channel = await channel_name(connection, queries.EVENT_CHANNEL)
                    await connection.add_listener(channel, self._wake)
                    try:
                        await self._read_from(connection)
                    finally:
                        with suppress(Exception):
                            await connection.remove_listener(channel, self._wake)
            except Exception as error:
                log.warning("agent_events_connection_lost", error=str(error))
                if self._has_read:
                    continue
                for stream in list(self._streams):
                    stream.error = error
                    stream.loaded.set()
                await asyncio.sleep(POLL_SECONDS)

    async def _read_from(self, connection: asyncpg.Connection[Any]) -> None:
        next_poll = 0.0
        next_key_check = time.monotonic() + KEY_CHECK_SECONDS
        while self._streams and not connection.is_closed():
            self._news.clear()
            notified, self._notified = self._notified, set()
            polls = time.monotonic() >= next_poll
            if polls:
                next_poll = time.monotonic() + POLL_SECONDS
            for stream in list(self._streams):
                if polls or str(stream.agent_run_id) in notified:
                    stream.is_stale = True
            if time.monotonic() >= next_key_check:
                next_key_check = time.monotonic() + KEY_CHECK_SECONDS
                await self._check_keys(connection)
            await self._load(connection)
            self._has_read = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(0.0, next_poll - time.monotonic()))

    async def _check_keys(self, connection: asyncpg.Connection[Any]) -> None:
        """End the streams whose keys are no longer valid."""
        by_tenant: dict[UUID, list[EventStream]] = defaultdict(list)
        for stream in list(self._streams):
            by_tenant[stream.tenant_id].append(stream)
        for tenant_id, streams in by_tenant.items():
            async with tenant_transaction(connection, tenant_id):
                key_ids = {stream.key_id for stream in streams}
                valid = await queries.find_valid_keys(connection, tenant_id, key_ids)
            for stream in streams:
                if stream.key_id not in valid:
                    stream.is_revoked = True
                    stream.events = ()
                    self.close(stream)
                    stream.loaded.set()

    async def _load(self, connection: asyncpg.Connection[Any]) -> None:
        """Fill all streams that may have more and whose events were taken."""
        by_tenant: dict[UUID, list[EventStream]] = defaultdict(list)
        for stream in list(self._streams):
            if stream.is_stale and not stream.events:
                by_tenant[stream.tenant_id].append(stream)
        for tenant_id, streams in by_tenant.items():
            for start in range(0, len(streams), STREAMS_PER_STATEMENT):
                some = streams[start : start + STREAMS_PER_STATEMENT]
                await self._load_tenant(connection, tenant_id, some)

    @staticmethod
    async def _load_tenant(
        connection: asyncpg.Connection[Any], tenant_id: UUID, streams: Sequence[EventStream]
    ) -> None:
        by_position = dict(enumerate(streams, start=1))
        wanted = [(each.agent_run_id, each.after) for each in by_position.values()]
        async with tenant_transaction(connection, tenant_id):
            found = await queries.load_progress(connection, tenant_id, wanted, PAGE_EVENTS)
        rows: dict[int, list[asyncpg.Record]] = defaultdict(list)
        for row in found:
            rows[row["position"]].append(row)
        for position, stream in by_position.items():
            stream.fill(rows[position])


_feeds: WeakKeyDictionary[Sessions, EventFeed] = WeakKeyDictionary()


def feed_of(sessions: Sessions) -> EventFeed:
    """The feed of this process."""
    if sessions not in _feeds:
        _feeds[sessions] = EventFeed(sessions)
    return _feeds[sessions]


def format_event(event: AgentEvent) -> str:
    """The event as the text of a server-sent event."""
    data = {**event.data, "at": event.created_at.isoformat()}
    text = json.dumps(data, ensure_ascii=False)
    return f"id: {event.number}\nevent: {event.type}\ndata: {text}\n\n"


def format_error(error: Exception) -> str:
    """An event that ends a stream. It has no `id`, so `Last-Event-ID` is that of the last event."""
    public = to_public_error(error)
    detail = (
        public.detail if isinstance(public, ServiceUnavailable) else ServiceUnavailable().detail
    )
    data = {"code": ServiceUnavailable.code, "detail": detail}
    return f"event: error\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


async def stream_events(
    feed: EventFeed, stream: EventStream, *, follow: bool = True
) -> AsyncGenerator[str]:
    """The events of a stream, until the run has ended or waits for a person. Without `follow`, only
    those that there are; if there are none, those that come next within `LONG_POLL_SECONDS`.
    Without a database, the stream ends with an event `error`; one without `follow` just ends.
    """
    deadline = time.monotonic() + LONG_POLL_SECONDS
    try:
        while True:
            events = feed.take(stream)
            for event in events:
                yield format_event(event)
            if not follow and (events or time.monotonic() >= deadline):
                return
            if stream.has_ended and not stream.events:
                return
            if stream.error is not None:
                if follow:
                    yield format_error(stream.error)
                return
            timeout = KEEP_ALIVE_SECONDS if follow else max(0.0, deadline - time.monotonic())
            try:
                await asyncio.wait_for(stream.loaded.wait(), timeout)
            except TimeoutError:
                if follow:
                    yield ": keep-alive\n\n"
    finally:
        feed.close(stream)
