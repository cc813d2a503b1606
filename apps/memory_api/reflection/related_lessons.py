"""The known lessons of tasks with the same tools, for the prompt of a reflection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from uuid import UUID

from memory_api.memories.index.scopes import kind_scope
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.search.query import MemoryRecord, SearchFilters, SearchHit
from memory_api.memories.search.search import embed_query, search_in_session
from memory_api.reflection.context import (
    TOOLS,
    ReflectionInput,
    show_as_bullets,
    used_tools,
    without_copies,
)
from memory_api.reflection.evidence import PromptLesson
from memory_api.runtime import Runtime
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import as_items
from memory_api.traces.queries import find_traces_of_playbook
from memory_api.traces.schemas import EventType

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
