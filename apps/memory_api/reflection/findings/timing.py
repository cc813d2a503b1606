"""The slowest step, from measured durations or the times of a call and its response."""

from __future__ import annotations

from apps.memory_api.reflection.findings.schemas import Slow
from apps.memory_api.traces.steps import Run, Step


def find_slow(run: Run) -> Slow | None:
    """The step that took longest and its share of all measured time; None with fewer than two
    measured steps."""
    timed = [(seconds, s) for s in run.steps if (seconds := _taken(run, s)) is not None]
    total = sum(seconds for seconds, _ in timed)
    if len(timed) < 2 or total <= 0:
        return None
    seconds, step = max(timed, key=lambda x: x[0])
    return Slow(step.event, step.call, round(seconds, 3), round(seconds / total, 3))


def _taken(run: Run, step: Step) -> float | None:
    if step.seconds is not None or step.response_at is None:
        return step.seconds
    start, end = run.events[step.at].timestamp, run.events[step.response_at].timestamp
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()
