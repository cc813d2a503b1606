"""Depth and age of the queue, of all tenants together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from memory_api.core.db import Sessions
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.run_queue.port import SlotKind

QUEUE_FIGURES = load_statement("run_queue/queue.sql", "queue_figures")
MAX_COUNTED = 200_000
"""Queued tickets are counted up to this number. The alert on a long queue is below it."""
MAX_AGE_SECONDS = 5.0
"""How long figures are reused, however often they are asked for."""

TicketState = Literal["due", "delayed", "running"]


@dataclass(frozen=True)
class QueueFigures:
    """The tickets in one state. `oldest_seconds` is 0 without a ticket."""

    state: TicketState
    count: int
    oldest_seconds: float


class QueueGauge:
    """Reads the figures with one statement, at most every `MAX_AGE_SECONDS` per process."""

    def __init__(self, sessions: Sessions, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._lock = asyncio.Lock()
        self._figures: Sequence[QueueFigures] = ()
        self._read_at = float("-inf")

    async def read(self) -> Sequence[QueueFigures]:
        """Raises the error of the database if it cannot be asked."""
        async with self._lock:
            if self._clock() - self._read_at >= MAX_AGE_SECONDS:
                async with self._sessions.without_tenant() as session:
                    parameters = {"limit": MAX_COUNTED, "slots": list(get_args(SlotKind))}
                    rows = await fetch_rows(session, QUEUE_FIGURES, parameters)
                self._figures = [
                    QueueFigures(state, count, age or 0.0) for state, count, age in rows
                ]
                self._read_at = self._clock()
            return self._figures
