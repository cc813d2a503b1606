"""A trace that was sent again without its name is no second attempt of its task: it teaches nothing
new and counts for nothing.

Two named traces are two runs, however alike. Of others, one is taken for another of the same task
when the same happened in the same order, said in nearly the same words; ids and times do not
matter. Of 551 traces of real runs, sent again with words and dates changed, the least alike was .95
on average and .67 in one event; of 21 pairs of attempts of a task with the same calls in the same
order but other words, 4 were as near.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.chain import EVALUATE, REFLECT
from apps.memory_api.jobs.queries import latest_run
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.similar import likeness_once
from apps.memory_api.traces.queries import list_events, look_alikes
from apps.memory_api.traces.tables import Trace, TraceEvent

SHORTEST = 300
"""Bytes; a shorter run may well go the same way twice."""
ALL, EACH = 0.95, 0.6
"""How alike all events are on average, and each of them at least, 0..1."""


async def find_first(session: AsyncSession, trace: Trace) -> Run | None:
    """The run that learnt, or will learn, from what this trace is once more; the trace then says so
    (`same_as`). None for a trace that is new, or whose first sending came to nothing.
    """
    for other in await look_alikes(session, trace):
        run = await latest_run(session, other.id, EVALUATE, REFLECT)
        if run is None or run.state in ("failed", "dead"):
            continue
        both = await list_events(session, trace.id), await list_events(session, other.id)
        if await asyncio.to_thread(alike, *both):
            trace.same_as = other.id
            return run
    return None


def alike(ours: Sequence[TraceEvent], theirs: Sequence[TraceEvent]) -> bool:
    """Whether these are the events of one run, told twice."""
    if [_shape(event) for event in ours] != [_shape(event) for event in theirs]:
        return False
    if sum(len(event.content.encode()) for event in ours) < SHORTEST:
        return False
    scores: list[float] = []
    for one, other in zip(ours, theirs, strict=True):
        same = one.content == other.content
        scores.append(1.0 if same else likeness_once(one.content, other.content))
        if scores[-1] < EACH:
            return False
    return sum(scores) >= ALL * len(scores)


def _shape(event: TraceEvent) -> tuple[str, str | None, str | None]:
    return event.event_type, event.tool_name, event.agent
