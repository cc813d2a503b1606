"""From what was learnt to the curator of a playbook: the step that follows a reflection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.jobs.chain import CURATE, follow
from apps.memory_api.jobs.port import JobQueue
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.hints import Hint
from apps.memory_api.reflection.queries import not_curated

PLAYBOOK, LESSONS, HINTS = "playbook", "lessons", "hints"
"""In the input of the step that curates: the playbook's name, the ids of memories, and what the run
says about bullets that it used."""


async def to_curator(
    queue: JobQueue,
    session: AsyncSession,
    run: Run,
    place: Place | None,
    lessons: Sequence[UUID],
    hints: Sequence[Hint] = (),
) -> Run | None:
    """Queue the curation of these memories, in the transaction that finishes `run`. None when there
    is no playbook, or it knows them all and nothing is said about its bullets.
    """
    if place is None or not lessons:
        return None
    new = await not_curated(session, place, lessons)
    told = [hint for hint in hints if hint.delta() is not None]
    if not new and not told:
        return None
    input = {
        PLAYBOOK: place.name,
        LESSONS: [str(one) for one in new or lessons],
        HINTS: [to_jsonable_python(asdict(hint)) for hint in told],
    }
    return await follow(queue, session, run, CURATE, input)


def handed_over(run: Run) -> tuple[Place, list[UUID], Sequence[Mapping[str, Any]]]:
    """What a run that curates was given: playbook, memories, hints."""
    given: Mapping[str, Any] = run.input
    place = Place(run.project_id, given[PLAYBOOK])
    return place, [UUID(one) for one in given[LESSONS]], given[HINTS]
