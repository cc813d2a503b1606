"""What a reflection needs from the database: the trace, the attempts at its task, known lessons,
and the bullets it used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import NotFound
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.schemas import MemoryKind
from memory_api.playbooks.ref import PlaybookRef
from memory_api.reflection.bullet_usage import UsedBullet, load_bullet_usage
from memory_api.reflection.evidence import Evidence, PromptBullet, PromptLesson
from memory_api.reflection.model_output import SharedReflection
from memory_api.runs.chain import OUTCOME
from memory_api.runs.tables import RunRow
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.attempts import Attempt
from memory_api.traces.event_cache import EVENT_CACHE
from memory_api.traces.queries import (
    get_trace,
    list_earlier_attempts,
    load_attempt_events,
)
from memory_api.traces.schemas import ErrorInfo, OutcomeType
from memory_api.traces.tables import TraceRow
from memory_api.traces.tools import ToolDefinition, recorded_tools, to_tools

MAX_TASK_ATTEMPTS = 200
"""The newest attempts at a task, whose lessons are known."""
MAX_TASK_LESSONS = 20
MAX_TASK_HINTS = 1
TOOLS = "tools"
"""Key of a lesson's metadata: the names of the tools that its trace used."""

TASK_KNOWLEDGE = load_statement("reflection/context.sql", "task_knowledge")
BULLETS_OF_LESSONS = load_statement("reflection/context.sql", "bullets_of_lessons")


@dataclass(frozen=True)
class TaskLesson:
    """A known lesson of the task; `of_group` if it comes from comparing several attempts."""

    text: str
    of_group: bool = False


@dataclass(frozen=True)
class TaskKnowledge:
    """What is known about a task: lessons and hints of earlier reflections, newest first, each text
    once. `shown` are the lessons as a model is shown them: one for each bullet that they became.
    """

    lessons: Sequence[TaskLesson] = ()
    shown: Sequence[PromptLesson] = ()
    hints: Sequence[str] = ()


async def load_task_knowledge(session: AsyncSession, trace: TraceRow) -> TaskKnowledge:
    if trace.task_key is None:
        return TaskKnowledge()
    parameters = {
        "tenant": current_tenant_id(session),
        "project": trace.project_id,
        "task": trace.task_key,
        "max_attempts": MAX_TASK_ATTEMPTS,
        "max_lessons": MAX_TASK_LESSONS,
        "max_hints": MAX_TASK_HINTS,
    }
    lessons: dict[str, TaskLesson] = {}
    known: dict[str, PromptLesson] = {}
    hints: dict[str, None] = {}
    for row in await fetch_rows(session, TASK_KNOWLEDGE, parameters):
        if row.kind in (MemoryKind.REFLECTION, MemoryKind.EPISODE):
            hints[row.content] = None
            continue
        earlier = lessons.get(row.content)
        of_group = row.of_group or (earlier is not None and earlier.of_group)
        lessons[row.content] = TaskLesson(row.content, of_group)
        known.setdefault(row.content, PromptLesson(row.content, row.id))
    shown = await show_as_bullets(session, list(known.values()))
    return TaskKnowledge(list(lessons.values()), shown, list(hints))


async def show_as_bullets(
    session: AsyncSession, lessons: Sequence[PromptLesson]
) -> list[PromptLesson]:
    """The lessons with the texts of the bullets that they became, one for each bullet. Without
    lessons that a curator rejected and that became no bullet.
    """
    if not lessons:
        return []
    parameters = {
        "tenant": current_tenant_id(session),
        "lessons": [lesson.memory_id for lesson in lessons],
    }
    rows = await fetch_rows(session, BULLETS_OF_LESSONS, parameters)
    bullet_of = {row.memory_id: row for row in reversed(rows) if row.bullet_id}
    rejected = {row.memory_id for row in rows if row.decision == "rejected"} - bullet_of.keys()
    shown: dict[UUID, PromptLesson] = {}
    for lesson in lessons:
        if lesson.memory_id in rejected:
            continue
        row = bullet_of.get(lesson.memory_id)
        key = row.bullet_id if row else lesson.memory_id
        text = f"{row.when_to_use}: {row.content}".removeprefix(": ") if row else lesson.text
        shown.setdefault(key, PromptLesson(text, lesson.memory_id))
    return list(shown.values())


def without_copies(lessons: Sequence[PromptLesson], limit: int | None = None) -> list[PromptLesson]:
    """The first `limit` lessons in their order, without those with the same words as an earlier
    one.
    """
    first: dict[bytes, PromptLesson] = {}
    for lesson in lessons:
        first.setdefault(fingerprint(lesson.text), lesson)
    return list(first.values())[:limit]


def used_tools(context: ReflectionContext) -> list[ToolDefinition]:
    """The tools that the run called; without calls, those that it could call."""
    called = recorded_tools(e.tool_name for e in context.events if e.tool_name)
    return called or list(context.tools)


@dataclass(frozen=True)
class ReflectionInput:
    """All that a learner needs to know of one run: its trace, the playbook, the used bullets."""

    run: RunRow
    trace: TraceRow
    context: ReflectionContext
    """The trace as it is analyzed."""
    trace_evidence: Evidence
    """Without bullets, lessons and hints."""
    playbook: PlaybookRef | None
    """The playbook of the trace; None if the trace names none, or one that does not exist."""
    used_bullets: Sequence[UsedBullet]
    """The bullets that get verdicts."""
    served_texts: Mapping[str, str]
    """Key → text of the playbook that the agent had, now and as it was served."""
    task_knowledge: TaskKnowledge = field(default_factory=TaskKnowledge)
    related_lessons: Sequence[PromptLesson] = ()
    """Lessons of tasks with the same tools; filled in only if a model is asked."""
    shared: SharedReflection | None = None
    """What the model answered about this run among several."""

    @property
    def evidence(self) -> Evidence:
        """The evidence with the used bullets and all known lessons."""
        bullets = [PromptBullet(used.key, used.advice, used.usage) for used in self.used_bullets]
        return replace(
            self.trace_evidence,
            bullets=bullets,
            lessons=without_copies([*self.task_knowledge.shown, *self.related_lessons]),
            task_hints=self.task_knowledge.hints,
        )

    @property
    def learning_playbook(self) -> PlaybookRef | None:
        """The playbook that the lessons are for. It may not exist yet."""
        name = self.trace.playbook
        return self.playbook or (PlaybookRef(self.trace.project_id, name) if name else None)

    def is_reused(self, text: str) -> bool:
        """Whether a bullet that was served contains a text, apart from case and spaces: then it is
        no new lesson.
        """
        words = " ".join(text.casefold().split())
        return any(words in " ".join(t.casefold().split()) for t in self.served_texts.values())


async def load_reflection_input(session: AsyncSession, run: RunRow) -> ReflectionInput:
    """Without `related_lessons` and `shared`. Raises `NotFound` if the trace was erased."""
    trace = await get_trace(session, run.trace_id) if run.trace_id else None
    if trace is None:
        raise NotFound
    events = await EVENT_CACHE.load(session, trace)
    attempts = await _load_attempts(session, trace)
    usage = await load_bullet_usage(session, trace, events)
    effective: str | None = run.input.get(OUTCOME)
    outcome = effective or trace.outcome
    context = ReflectionContext(
        events=list(events),
        outcome=OutcomeType(outcome or OutcomeType.PARTIAL),
        outcome_is_known=outcome is not None,
        overruled_outcome=OutcomeType(trace.outcome)
        if effective and trace.outcome and trace.outcome != effective
        else None,
        tenant_id=str(trace.tenant_id),
        project_id=trace.project_id,
        session_id=trace.session_id,
        error=ErrorInfo.model_validate(trace.error) if trace.error else None,
        task_description=trace.task_description,
        task_goal=trace.task_goal,
        generated_answer=trace.generated_answer,
        related_memory_ids=[UUID(memory) for memory in trace.related_memory_ids],
        tools=to_tools(trace.tools),
    )
    return ReflectionInput(
        run,
        trace,
        context,
        Evidence(attempts, trace.ground_truth, trace.test_report, focus=usage.focus),
        usage.playbook,
        usage.bullets,
        usage.served_texts,
        await load_task_knowledge(session, trace),
    )


async def _load_attempts(session: AsyncSession, trace: TraceRow) -> list[Attempt]:
    rows = await list_earlier_attempts(session, trace)
    events = await load_attempt_events(session, [row.id for row in rows])
    return [
        Attempt(
            outcome=OutcomeType(row.effective_outcome or OutcomeType.PARTIAL),
            events=events.get(row.id, []),
            trace_id=str(row.id),
            tools=to_tools(row.tools),
        )
        for row in rows
    ]
