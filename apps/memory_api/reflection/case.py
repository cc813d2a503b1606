"""What a reflection is made of: a trace, the bullets its run used, what its task has taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.prepare import Draft
from apps.memory_api.memory.schemas import Kind
from apps.memory_api.playbook.recognise import recognise
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.evidence import ShownBullet
from apps.memory_api.reflection.group import TaskLesson, group_drafts, task_lessons
from apps.memory_api.reflection.improve import earlier_of
from apps.memory_api.reflection.material import Material, load
from apps.memory_api.reflection.store import drafts
from apps.memory_api.reflection.think import Thought
from apps.memory_api.reflection.used import (
    UsedBullet,
    place_of,
    served_texts,
    text_of,
    used_bullets,
)
from apps.memory_api.traces.schemas import OutcomeType

OUTCOME, IMPORTANCE = "outcome", "importance"
"""In the input of the run: what its evaluation found."""


@dataclass(frozen=True)
class Case:
    """One run `reflect`, and all it needs out of the database."""

    run: Run
    material: Material
    place: Place | None
    used: Sequence[UsedBullet]
    served: Mapping[str, str]
    """What the playbook told the run: key → text. It is never a new lesson."""
    known: Sequence[TaskLesson]

    def with_lessons(self, lessons: Sequence[str]) -> Case:
        """The same with what is remembered of such tasks."""
        bullets = [ShownBullet(one.key, text_of(one.bullet), one.how) for one in self.used]
        evidence = replace(self.material.evidence, bullets=bullets, lessons=lessons)
        return replace(self, material=replace(self.material, evidence=evidence))

    def own_drafts(self, thought: Thought) -> list[Draft]:
        """The reflection, and its strategy unless the playbook said that already."""
        if thought.result is None:
            return []
        context = self.material.context
        made = drafts(
            thought.result,
            project_id=context.project_id,
            session_id=context.session_id,
            context=context,
            trace_id=self.material.trace.id,
            run_id=self.run.id,
        )
        return [one for one in made if one.kind is Kind.REFLECTION or self._is_new(one)]

    def task_drafts(self, own: Sequence[Draft]) -> list[Draft]:
        """What the attempts of the task teach together, beyond what this run does."""
        if earlier_of(self.run) is not None:
            return []  # the run that is being improved has said it
        said = {one.content for one in own}
        made = group_drafts(self.material, self.known, self.run.id)
        return [one for one in made if one.content not in said and self._is_new(one)]

    def _is_new(self, draft: Draft) -> bool:
        return recognise(draft.content, self.served) is None


async def load_case(session: AsyncSession, run: Run | None) -> Case:
    """Raises `NotFound` when the trace was erased meanwhile."""
    if run is None or run.trace_id is None:
        raise NotFound
    material = await load(session, run.trace_id)
    if outcome := run.input.get(OUTCOME):
        real = material.context.model_copy(update={"outcome": OutcomeType(outcome)})
        material = replace(material, context=real)
    trace = material.trace
    place = await place_of(session, trace)
    if place is None and trace.playbook is not None:
        place = Place(trace.project_id, trace.playbook)
    used = await used_bullets(session, trace, material.context.events)
    told = {one.key: text_of(one.bullet) for one in used}
    served = told | await served_texts(session, trace)
    return Case(run, material, place, used, served, await task_lessons(session, trace))
