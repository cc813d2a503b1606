"""What follows a commit: callbacks, notifications to other processes, and the note of a request
that it may not be executed twice.

A notification is a hint: its receiver polls, too. NOTIFY inside a transaction would let its commit
fail when PostgreSQL's queue of notifications is full, which every login of the database can bring
about. So it is a statement of its own after the commit, whose failure is logged only. The names of
the channels contain the secret of the installation, so that a login that cannot read it does not
wake a worker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import asyncpg
import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.resources import read_sql

log = structlog.get_logger()

NOTIFY = read_sql("core/after_commit.sql", "notify")
CHANNEL_NAME = read_sql("core/after_commit.sql", "channel_name")
TICKETS_CHANNEL = "tickets"
INTERVAL_SECONDS = 0.02
"""Between two statements of a process. What is added meanwhile goes with the next one."""
LOG_INTERVAL_SECONDS = 60.0
AFTER_COMMIT_KEY = "after_commit"
"""Key of the callbacks of `call_after_commit` in `session.info`."""
NOTIFIER_KEY = "notifier"
"""Key of the `Notifier` in `session.info`."""


class _Connections(Protocol):
    def raw_connection(self) -> AbstractAsyncContextManager[asyncpg.Connection[Any]]: ...


class Notifier:
    """Sends the notifications of a process, several with one statement."""

    def __init__(self, connections: _Connections) -> None:
        self._connections = connections
        self._pending: set[tuple[str, str]] = set()
        self._sending: asyncio.Task[None] | None = None
        self._logged_at = float("-inf")

    def send(self, channel: str, payload: str = "") -> None:
        """Send soon, in the background."""
        self._pending.add((channel, payload))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_pending())

    async def close(self) -> None:
        """Send what is pending."""
        if self._sending is not None:
            await self._sending

    async def _send_pending(self) -> None:
        while self._pending:
            pending, self._pending = sorted(self._pending), set()
            channels, payloads = zip(*pending, strict=True)
            try:
                async with self._connections.raw_connection() as connection:
                    await connection.execute(NOTIFY, channels, payloads)
            except Exception as error:  # its receivers poll
                self._log_failure(error)
            await asyncio.sleep(INTERVAL_SECONDS)

    def _log_failure(self, error: Exception) -> None:
        if time.monotonic() - self._logged_at >= LOG_INTERVAL_SECONDS:
            self._logged_at = time.monotonic()
            log.warning("notification_failed", error=type(error).__name__)


async def channel_name(connection: asyncpg.Connection[Any], channel: str) -> str:
    """The name under which this installation's notifications of a channel are sent."""
    return await connection.fetchval(CHANNEL_NAME, channel)


def call_after_commit(session: AsyncSession, callback: Callable[[], None]) -> None:
    """Call `callback` once the session's transaction is committed: for what must not happen if it
    is rolled back. Only for sessions of `Sessions.for_tenant`.
    """
    session.info.setdefault(AFTER_COMMIT_KEY, []).append(callback)


def notify_after_commit(session: AsyncSession, channel: str, payload: str = "") -> None:
    """Send a notification once the session's transaction is committed. It may be lost. Only for
    sessions of `Sessions.for_tenant`.
    """
    notifier: Notifier = session.info[NOTIFIER_KEY]
    call_after_commit(session, lambda: notifier.send(channel, payload))


@dataclass
class CommitWatch:
    """Whether a transaction of a tenant was committed, or may have been when it broke."""

    may_have_committed: bool = False


_commit_watch: ContextVar[CommitWatch | None] = ContextVar("commit_watch", default=None)


@contextmanager
def watch_commits() -> Generator[CommitWatch]:
    """Notes the commits of writing transactions in this context."""
    watch = CommitWatch()
    token = _commit_watch.set(watch)
    try:
        yield watch
    finally:
        _commit_watch.reset(token)


def note_commit() -> None:
    if (watch := _commit_watch.get()) is not None:
        watch.may_have_committed = True
