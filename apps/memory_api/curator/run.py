"""Curation of one playbook: lessons become changes (`curate`), and changes become rows (`merge`).

`curate` looks at the part of the playbook that concerns the lessons, thinks with no transaction
open, and changes nothing. `merge` is plain code under the playbook's lock (`merging.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.memory_api.curator.merging import merge
from apps.memory_api.curator.prompt import BUILTIN
from apps.memory_api.curator.schemas import Curation, Lesson, Merged
from apps.memory_api.curator.think import think
from apps.memory_api.curator.view import look, questions
from apps.memory_api.playbook.queries import get_playbook
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.mind import mind_for
from apps.memory_api.runtime import Runtime

__all__ = ["Curation", "Lesson", "Merged", "curate", "merge"]

MOST_LESSONS = 50
"""Lessons of one curation; more is for more than one."""
SHARE = 3
"""A third of the tokens that a reflection may show is enough for bullets and lessons."""


async def curate(
    runtime: Runtime,
    tenant_id: UUID,
    place: Place,
    lessons: Sequence[Lesson],
    *,
    run_id: UUID | None,
    or_rules: bool = False,
) -> Curation:
    """What these lessons should change. At most one model call (and one that shows the model its
    mistake); none where rules see that everything is said already.

    Raises the model's `LLMError`, unless `or_rules`: then rules decide and `failure` says why.
    Raises ValueError for more than `MOST_LESSONS` lessons.
    """
    if len(lessons) > MOST_LESSONS:
        raise ValueError(f"{len(lessons)} lessons; one curation takes at most {MOST_LESSONS}")
    asked = await questions(await runtime.embedder_of(tenant_id), lessons)
    async with runtime.sessions.tenant(tenant_id) as session:
        playbook = await get_playbook(session, place)
        view = await look(session, playbook, place, lessons, asked)
    mind = mind_for(
        runtime,
        tenant_id,
        place.name,
        run_id,
        builtin=BUILTIN,
        prompt_tokens=runtime.settings.llm_prompt_tokens // SHARE,
        or_rules=or_rules,
    )
    return await think(lessons, view, mind)
