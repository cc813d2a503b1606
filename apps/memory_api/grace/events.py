"""Server-sent events of agent runs. One connection per process listens for all streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import asyncpg
import structlog

from apps.memory_api.core.db import Sessions
from apps.memory_api.core.db_errors import DatabaseUnavailable
from apps.memory_api.grace import queries
from apps.memory_api.grace.tables import AgentEventRow
from apps.memory_api.runtime import Runtime

log = structlog.get_logger()

POLL_SECONDS = 1.0
"""A stream also looks for events at this interval, in case a notification is lost."""
PAGE_EVENTS = 200
LONG_POLL_SECONDS = 3.0
STOPPED = ("waiting", "done", "failed", "cancelled")
"""States in which a stream ends once all events are sent."""


class EventNotifier:
    """Wakes the streams of an agent run when it has new events. It holds a connection only while
    there are streams.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._streams: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self, agent_run_id: UUID) -> AsyncGenerator[asyncio.Event]:
        """An event that is set when the agent run has new events."""
        key, news = str(agent_run_id), asyncio.Event()
        self._streams[key].add(news)
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen())
        try:
            yield news
        finally:
            self._streams[key].discard(news)
            if not self._streams[key]:
                del self._streams[key]
            listener = self._listener
            if not self._streams and listener:
                listener.cancel()
                self._listener = None

    def _wake(self, _connection: object, _pid: int, _channel: str, payload: Any) -> None:
        for news in self._streams.get(str(payload), ()):
            news.set()

    @staticmethod
    async def _wait_until_closed(connection: asyncpg.Connection[Any]) -> None:
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        await closed.wait()

    async def _listen(self) -> None:
        while True:
            try:
                async with self._sessions.raw_connection() as connection:
                    await connection.add_listener(queries.EVENT_CHANNEL, self._wake)
                    try:
                        await self._wait_until_closed(connection)
                    finally:
                        with suppress(Exception):
                            await connection.remove_listener(queries.EVENT_CHANNEL, self._wake)
            except (DatabaseUnavailable, OSError) as error:
                log.warning("agent_events_listener_lost", error=str(error))
                await asyncio.sleep(POLL_SECONDS)


_notifiers: WeakKeyDictionary[Sessions, EventNotifier] = WeakKeyDictionary()


def notifier_of(sessions: Sessions) -> EventNotifier:
    """The notifier of this process."""
    if sessions not in _notifiers:
        _notifiers[sessions] = EventNotifier(sessions)
    return _notifiers[sessions]


def format_event(event: AgentEventRow) -> str:
    """The event as the text of a server-sent event."""
    data = json.dumps(event.data | {"at": event.created_at.isoformat()}, ensure_ascii=False)
    return f"id: {event.number}\nevent: {event.type}\ndata: {data}\n\n"


async def stream_events(
    runtime: Runtime, tenant_id: UUID, agent_run_id: UUID, after: int, *, follow: bool = True
) -> AsyncGenerator[str]:
    """The events after this number, until the run has ended or waits for a person. Without
    `follow`, only those that there are; if there are none, those that come next within
    `LONG_POLL_SECONDS`.
    """
    deadline = None if follow else time.monotonic() + LONG_POLL_SECONDS
    async with notifier_of(runtime.sessions).subscribe(agent_run_id) as news:
        while True:
            news.clear()
            async with runtime.sessions.for_tenant(tenant_id) as session:
                agent_run = await queries.get_agent_run(session, agent_run_id)
                events = await queries.list_events(session, agent_run_id, after, PAGE_EVENTS)
            for event in events:
                yield format_event(event)
                after = event.number
            if agent_run is None or (deadline is not None and events):
                return
            if len(events) == PAGE_EVENTS:
                continue
            if agent_run.state in STOPPED and after >= agent_run.event_count:
                return
            if deadline is not None and time.monotonic() >= deadline:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), POLL_SECONDS)
