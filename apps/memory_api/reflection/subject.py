"""What a reflection is about: a trace, what is known of its task, what its playbook told it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.core.errors import NotFound
from apps.memory_api.jobs.tables import Run
from apps.memory_api.playbook.recognise import recognise
from apps.memory_api.playbook.rows import Place
from apps.memory_api.reflection.evidence import Evidence, ShownBullet
from apps.memory_api.reflection.group import TaskLesson, task_lessons
from apps.memory_api.reflection.material import Material, load
from apps.memory_api.reflection.used import UsedBullet, text_of, use_of
from apps.memory_api.traces.schemas import OutcomeType
from apps.memory_api.traces.tables import Trace

IMPORTANCE, OUTCOME = "importance", "outcome"
"""In the input of a run that an evaluation asked for: how important the trace is, 0..1, and how it
really ended, which may not be what its sender believed."""


@dataclass(frozen=True)
class Subject:
    """The run that is held, its trace with all that is known of it, and the playbook behind it."""

    run: Run
    material: Material
    place: Place | None
    """The playbook it belongs to; None when it names none, or none that is there."""
    used: Sequence[UsedBullet]
    told: Mapping[str, str]
    """Key → what the playbook told it, in the words of today and of then."""
    taught: Sequence[TaskLesson]
    """What its task has taught before."""

    @property
    def trace(self) -> Trace:
        return self.material.trace

    @property
    def home(self) -> Place | None:
        """The playbook that learns from it, which the first lesson makes."""
        named = self.trace.playbook
        return self.place or (Place(self.trace.project_id, named) if named else None)

    def evidence(self, related: Sequence[str]) -> Evidence:
        """What a model is shown beside the trace; `related` are lessons of tasks like this."""
        shown = [ShownBullet(one.key, text_of(one.bullet), one.how) for one in self.used]
        lessons = dict.fromkeys([*(lesson.text for lesson in self.taught), *related])
        return replace(self.material.evidence, bullets=shown, lessons=list(lessons))

    def is_told(self, text: str) -> bool:
        """Whether a text came from the playbook, so that it is no new lesson."""
        return recognise(text, self.told) is not None


async def load_subject(session: AsyncSession, run: Run) -> Subject:
    """Raises `NotFound` when the trace was erased meanwhile."""
    if run.trace_id is None:
        raise NotFound
    material = await load(session, run.trace_id)
    if ended := run.input.get(OUTCOME):
        context = material.context.model_copy(update={"outcome": OutcomeType(ended)})
        material = replace(material, context=context)
    trace = material.trace
    use = await use_of(session, trace, material.context.events)
    taught = await task_lessons(session, trace)
    return Subject(run, material, use.place, use.bullets, use.told, taught)
