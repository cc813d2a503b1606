"""Whether work grows faster than its input. On an input four times as large, linear work takes four
times as long and quadratic work sixteen times, on any machine and under any load."""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_GROWTH = 8
"""Times as long on an input four times as large, between linear (4) and quadratic (16)."""


def grows_faster_than_input(work: Callable[[float], object], noticeable_seconds: float) -> bool:
    """Whether `work(1)`, on the whole input, takes noticeable CPU time, and too many times as much
    as `work(0.25)`, on a quarter of it. Linear work must take far less than `noticeable_seconds`.
    """
    first = cpu_seconds(work, 1)
    if first <= noticeable_seconds:
        return False
    whole = min(first, cpu_seconds(work, 1), cpu_seconds(work, 1))
    return whole > MAX_GROWTH * min(cpu_seconds(work, 0.25) for _ in range(3))


def cpu_seconds(work: Callable[[float], object], share: float) -> float:
    started = time.process_time()
    work(share)
    return time.process_time() - started
