"""How many agent runs of a process begin at the same time.

A worker holds several agent runs. If all of them compute at once, as after a burst of questions,
each step takes as long as the steps of all others together. So only a few have a turn, and the next
one begins when one of these has ended: the last one ends no later, and the others earlier. A run
that waits for a model or a slow tool does not compute, so its turn ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from memory_api.core.db import Sessions

MAX_TURNS = 2
"""While one run waits for PostgreSQL, the other one computes."""
TURN_SECONDS = 0.1
"""A run that takes longer mostly waits."""


class Turns:
    """Gives `limit` turns at the same time, in the order of the requests."""

    def __init__(self, limit: int = MAX_TURNS, seconds: float = TURN_SECONDS) -> None:
        self._free = asyncio.Semaphore(limit)
        self._seconds = seconds

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[Callable[[], None]]:
        """Wait for a turn. It ends with the block, by a call of what this yields, or after
        `seconds`.
        """
        await self._free.acquire()
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, end)
        try:
            yield end
        finally:
            timer.cancel()
            end()


_turns: WeakKeyDictionary[Sessions, Turns] = WeakKeyDictionary()


def turns_of(sessions: Sessions) -> Turns:
    """The turns of this process."""
    return _turns.setdefault(sessions, Turns())
