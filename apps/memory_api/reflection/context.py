"""What a reflection needs from the database: the trace, the attempts at its task, known lessons of
the task and of similar ones, and the bullets it used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.db import current_tenant_id
from memory_api.core.errors import NotFound
from memory_api.core.statements import fetch_rows, load_statement
from memory_api.memories.index.drafts import fingerprint
from memory_api.memories.index.scopes import kind_scope
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import MemoryRecord, SearchFilters, SearchHit
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.playbooks.ref import PlaybookRef
from memory_api.reflection.bullet_usage import UsedBullet, load_bullet_usage
from memory_api.reflection.evidence import Evidence, PromptBullet, PromptLesson
from memory_api.reflection.model_output import SharedReflection
from memory_api.runs.chain import OUTCOME
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import as_items
from memory_api.trace_analysis.attempts import Attempt
from memory_api.traces.event_cache import EVENT_CACHE
from memory_api.traces.queries import (
    find_traces_of_playbook,
    get_trace,
    list_earlier_attempts,
    load_attempt_events,
)
from memory_api.traces.schemas import ErrorInfo, EventType, OutcomeType
from memory_api.traces.tables import TraceRow
from memory_api.traces.tools import ToolDefinition, recorded_tools, to_tools

MAX_TASK_ATTEMPTS = 200
"""The newest attempts at a task, whose lessons are known."""
MAX_TASK_LESSONS = 20
MAX_TASK_HINTS = 1
TOOLS = "tools"
"""Key of a lesson's metadata: the names of the tools that its trace used."""
LESSON_KINDS = (MemoryKind.STRATEGY, MemoryKind.INSIGHT)
"""Reflections repeat their strategies at greater length."""
MAX_RELATED_LESSONS = 10
"""`bench curate`: of 32 bullets that its 67 reflections repeat, the prompts show 30 with 5, 31 with
8 and 32 with 10; by the task alone, 28 with 5.
"""
RANK_OFFSET = 10
"""Of the fusion by reciprocal ranks: a small one prefers what one search ranks first."""
CANDIDATES_PER_LESSON = 8
MAX_QUERY_LENGTH = 2_000
"""Characters of a text that related lessons are searched by."""
_OWN_EVENTS = (EventType.LLM_RESPONSE, EventType.TOOL_CALL)

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
            tools=to_tools(row.tools),
        )
        for row in rows
    ]


async def find_related_lessons(runtime: Runtime, input: ReflectionInput) -> list[PromptLesson]:
    """The best lessons of the project for this run, best first: by its task and error, and by what
    the agent did and said, because a lesson names a situation in a task more often than the task.
    Only those whose trace used the tools of this one (half of the tools of either: one shared
    tool such as `calculate` does not make two tasks alike). For a trace without tools: lessons
    without tools that a client stored, or whose trace has the same playbook. No transaction may be
    open.
    """
    context, trace = input.context, input.trace
    tools = {tool.name for tool in used_tools(context)}
    embedder = await runtime.get_tenant_embedder(trace.tenant_id)
    queries = [await embed_query(embedder, text) for text in _query_texts(context)]
    scopes = [kind_scope(context.project_id, kind) for kind in LESSON_KINDS]
    async with runtime.sessions.for_tenant(trace.tenant_id) as session:
        rankings = [
            await search_in_session(
                session,
                query,
                scopes,
                top_k=CANDIDATES_PER_LESSON * MAX_RELATED_LESSONS,
                filters=SearchFilters(kinds=LESSON_KINDS),
            )
            for query in queries
        ]
        lessons = _fuse_by_rank(rankings)
        found = [(lesson, set(as_items(lesson.metadata_.get(TOOLS)))) for lesson in lessons]
        if tools:
            related = [lesson for lesson, others in found if _share_tools(tools, others)]
        else:
            without_tools = [lesson for lesson, others in found if not others]
            trace_ids = {lesson.trace_id for lesson in without_tools if lesson.trace_id}
            same = await find_traces_of_playbook(session, trace_ids, trace.playbook)
            related = [n for n in without_tools if n.trace_id is None or n.trace_id in same]
        known = [PromptLesson(lesson.content, lesson.id) for lesson in related]
        return without_copies(await show_as_bullets(session, known), MAX_RELATED_LESSONS)


def _fuse_by_rank(rankings: Sequence[Sequence[SearchHit[MemoryRecord]]]) -> list[MemoryRecord]:
    """The found lessons by reciprocal rank fusion, best first."""
    lessons = {hit.memory.id: hit.memory for ranking in rankings for hit in ranking}
    scores = defaultdict[UUID, float](float)
    for ranking in rankings:
        for rank, hit in enumerate(ranking):
            scores[hit.memory.id] += 1 / (RANK_OFFSET + rank)
    return [lessons[each] for each in sorted(scores, key=scores.__getitem__, reverse=True)]


def _query_texts(context: ReflectionContext) -> list[str]:
    """The task with its error; the newest messages and calls of the agent."""
    error = context.error.error_message if context.error else ""
    parts = (context.task_goal, context.task_description, error)
    task = "\n".join(part for part in parts if part)[:MAX_QUERY_LENGTH]
    steps = [
        f"{event.tool_name or ''} {event.content[:MAX_QUERY_LENGTH]}".strip()
        for event in context.events
        if event.event_type in _OWN_EVENTS
    ]
    done = "\n".join(dict.fromkeys(steps))[-MAX_QUERY_LENGTH:]
    return [text for text in (task, done) if text.strip()]


def _share_tools(tools: Collection[str], others: Collection[str]) -> bool:
    shared = len(set(tools) & set(others))
    return shared > 0 and 2 * shared >= min(len(tools), len(others))
