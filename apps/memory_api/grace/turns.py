"""How many agent runs of a process begin at the same time.

A worker holds several agent runs. If all of them compute at once, as after a burst of questions,
each step takes as long as the steps of all others together. So only a few have a turn, and the next
one begins when one of these has ended: the last one ends no later, and the others earlier. A run
that waits for a model or a slow tool does not compute, so its turn ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from apps.memory_api.core.db import Sessions

MAX_TURNS = 2
"""While one run waits for PostgreSQL, the other one computes."""
TURN_SECONDS = 0.1
"""A run that takes longer mostly waits."""


@dataclass
class Turns:
    """Gives `limit` turns at the same time, in the order of the requests."""

    limit: int = MAX_TURNS
    seconds: float = TURN_SECONDS
    _taken: int = 0
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque[asyncio.Future[None]])

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[Callable[[], None]]:
        """Wait for a turn. It ends with the block, by a call of what this yields, or after
        `seconds`.
        """
        if self._taken < self.limit:
            self._taken += 1
        else:
            await self._wait()
        has_ended = False

        def end() -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                self._give_back()

        timer = asyncio.get_running_loop().call_later(self.seconds, end)
        try:
            yield end
        finally:
            timer.cancel()
            end()

    async def _wait(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it had the turn already
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.cancelled():
                place.set_result(None)  # the turn goes to the next one
                return
        self._taken -= 1


_turns: WeakKeyDictionary[Sessions, Turns] = WeakKeyDictionary()


def turns_of(sessions: Sessions) -> Turns:
    """The turns of this process."""
    return _turns.setdefault(sessions, Turns())
