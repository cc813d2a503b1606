"""The episode of a trace: a memory of what was asked and how it ended, in the trace's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.queries import find_memory_id
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.context import TraceContext
from memory_api.reflection.rules import error_category_of, rule_tags
from memory_api.trace_analysis.facts import Fact
from memory_api.traces.schemas import Event, EventType, OutcomeType

MAX_EPISODE_PART = 600
"""Characters of the task and of the last message in an episode."""
MAX_EPISODE_TOOLS = 8


def episode_text(
    task: str | None, goal: str | None, outcome: str | None, events: Sequence[Event]
) -> str:
    """The task, the outcome, the tools with the number of their calls, and the last message of a
    trace, in its own words.
    """
    request = task or _first_message(events, EventType.USER_MESSAGE) or goal or ""
    calls = [event for event in events if event.event_type is EventType.TOOL_CALL]
    tools = Counter(event.tool_name for event in calls if event.tool_name)
    most_used = ", ".join(
        f"{name} ×{count}" for name, count in tools.most_common(MAX_EPISODE_TOOLS)
    )
    lines = [
        _shorten(request),
        f"Outcome: {outcome or 'unknown'}; {len(events)} events.",
        f"Tools: {most_used}." if most_used else "",
        _shorten(_last_message(events)),
    ]
    return "\n".join(line for line in lines if line)


def _first_message(events: Sequence[Event], event_type: EventType) -> str:
    return next((event.content for event in events if event.event_type == event_type), "")


def _last_message(events: Sequence[Event]) -> str:
    event_types = (EventType.LLM_RESPONSE, EventType.ERROR_EVENT, EventType.TOOL_RESPONSE)
    for event in reversed(events):
        if event.event_type in event_types and event.content:
            return event.content
    return ""


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_EPISODE_PART else text[: MAX_EPISODE_PART - 1] + "…"


def episode_draft(
    trace_context: TraceContext, facts: Sequence[Fact], importance: float | None = None
) -> MemoryDraft:
    """`importance` comes from the evaluation; without one, the outcome decides. Error category and
    tags are those of a reflection by rules.
    """
    trace, context = trace_context.trace, trace_context.context
    text = episode_text(trace.task_description, trace.task_goal, trace.outcome, context.events)
    category = error_category_of(facts, context)
    by_outcome = 0.3 if context.outcome is OutcomeType.SUCCESS else 0.6
    return MemoryDraft(
        kind=MemoryKind.EPISODE,
        project_id=trace.project_id,
        content=text,
        importance=by_outcome if importance is None else importance,
        source="trace",
        tags=rule_tags(facts, context)[0 if context.outcome_is_known else 1 :],
        error_category=category.value if category else None,
        outcome=trace.outcome,
        session_id=trace.session_id,
        trace_id=trace.id,
        metadata={"event_count": len(context.events), "task_key": trace.task_key},
        key=str(trace.id),
    )


async def find_episode(session: AsyncSession, draft: MemoryDraft) -> UUID | None:
    """The ID of the stored episode of the draft's trace. A trace has at most one."""
    assert draft.key is not None
    return await find_memory_id(session, draft.scope_address, draft.key)
