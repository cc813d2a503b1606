"""How fast a worker starts the runs of one tenant while runs of others come too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

SHARED_SECONDS = 5.0
"""A worker is shared for this time after it took a ticket of another tenant."""
MIN_START_SECONDS = 0.05
"""In a shared worker, a run of a tenant starts at the earliest this long after the one before. A
run of the rules engine takes 10 to 20 ms of CPU, so it leaves time for others; runs that wait for
a model start less often anyway.
"""


class LanePace:
    """Remembers when the last ticket of each lane was taken."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._taken_at: dict[UUID, float] = {}

    def note_taken(self, lanes: Iterable[UUID]) -> None:
        now = self._clock()
        self._taken_at.update((lane, now) for lane in lanes)

    @property
    def is_shared(self) -> bool:
        """Whether tickets of several tenants were taken lately."""
        now = self._clock()
        self._taken_at = {
            lane: at for lane, at in self._taken_at.items() if now - at < SHARED_SECONDS
        }
        return len(self._taken_at) > 1

    def paused_lanes(self) -> Sequence[UUID]:
        """The lanes of which no ticket is taken now."""
        now = self._clock()
        return [lane for lane, at in self._taken_at.items() if now - at < MIN_START_SECONDS]
