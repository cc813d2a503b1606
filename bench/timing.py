"""Measure times: median and tail of single calls, and calls per second of concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Call = Callable[[int], Awaitable[object]]
"""Executes the n-th call."""


@dataclass(frozen=True)
class Spread:
    """Milliseconds."""

    p50: float
    p95: float

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p95:.2f}"


async def spread(call: Call, times: int, *, warm: int = 8) -> Spread:
    """Time sequential calls of one caller, after `warm` warm-up calls."""
    for n in range(warm):
        await call(n)
    return _spread([await _taken(call, n) for n in range(times)])


async def spread_alternating(call: Call, other: Call, times: int) -> tuple[Spread, Spread]:
    """Time two kinds of calls alternately, so that the load of the machine is the same for both."""
    await spread(call, 1)
    both = [(await _taken(call, n), await _taken(other, n)) for n in range(times)]
    return _spread([first for first, _ in both]), _spread([second for _, second in both])


async def _taken(call: Call, n: int) -> float:
    start = time.perf_counter()
    await call(n)
    return (time.perf_counter() - start) * 1000


def _spread(taken: list[float]) -> Spread:
    taken.sort()
    return Spread(taken[len(taken) // 2], taken[min(len(taken) - 1, int(len(taken) * 0.95))])


async def rate(callers: Sequence[Call], seconds: float) -> tuple[float, Spread]:
    """Return the calls per second of all concurrent callers, and the times of the calls."""
    end = time.perf_counter() + seconds
    taken: list[float] = []

    async def run(call: Call, first: int) -> None:
        n = first
        while time.perf_counter() < end:
            taken.append(await _taken(call, n))
            n += 1

    start = time.perf_counter()
    await asyncio.gather(*(run(call, 17 * i) for i, call in enumerate(callers)))
    return len(taken) / (time.perf_counter() - start), _spread(taken)
