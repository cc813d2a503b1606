"""Lessons for the next attempt at the same task, from the facts of several attempts, and rules that
a user stated. Pure.

A task has at most `MAX_LESSONS_PER_TASK` lessons from comparisons. A later attempt that supports
one again gives the same text, which is counted as another observation of the stored lesson.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.reflection.context import TOOLS, TaskLesson, TraceContext, used_tools
from memory_api.reflection.rules import Strategy, context_language, find_differences
from memory_api.text.quotations import QUOTATIONS
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of

MAX_LESSONS_PER_TASK = 3
IMPORTANCE = 0.8
SOURCE = "contrast"
QUOTED_RULE_SOURCE = "user_rule"
"""Source of a lesson that is a user's own words."""


def choose_differences(
    strategies: Sequence[Strategy], known: Iterable[TaskLesson] = ()
) -> list[Strategy]:
    """Known texts again (as observations), and new ones until the task has `MAX_LESSONS_PER_TASK`
    lessons from comparisons.
    """
    known = list(known)
    known_texts = {lesson.text for lesson in known}
    known_count = len({lesson.text for lesson in known if lesson.of_group})
    repeated = [s for s in strategies if s.text in known_texts]
    new = [s for s in strategies if s.text not in known_texts]
    chosen = [*repeated, *new[: max(0, MAX_LESSONS_PER_TASK - known_count)]]
    return chosen[:MAX_LESSONS_PER_TASK]


def comparison_drafts(
    trace_context: TraceContext,
    facts: Sequence[Fact],
    known: Iterable[TaskLesson],
    run_id: UUID | None = None,
) -> list[MemoryDraft]:
    """What successful attempts at the task of this run did and failed ones did not; none without a
    task key.
    """
    trace, context = trace_context.trace, trace_context.context
    if trace.task_key is None:
        return []
    drafts: list[MemoryDraft] = []
    for strategy in choose_differences(find_differences(context_language(context), facts), known):
        assert strategy.fact is not None
        values = strategy.fact.values
        attempts = values["successful"] + values["failed"]
        metadata = {
            "of_group": True,
            TOOLS: [tool.name for tool in used_tools(context)],
            "task_key": trace.task_key,
            "difference": strategy.kind,
            "attempts": attempts,
        }
        drafts.append(
            MemoryDraft(
                kind=MemoryKind.STRATEGY,
                project_id=trace.project_id,
                content=strategy.text,
                tags=["contrast", "strategy"],
                importance=IMPORTANCE,
                confidence=1 - 1 / (1 + attempts),
                source=SOURCE,
                outcome=trace.outcome,
                session_id=trace.session_id,
                trace_id=trace.id,
                source_event_ids=list(strategy.fact.event_ids),
                metadata=metadata,
                actor=f"engine:{SOURCE}",
                run_id=run_id,
            )
        )
    return drafts


def user_rule_drafts(
    trace_context: TraceContext, facts: Sequence[Fact], run_id: UUID | None = None
) -> list[MemoryDraft]:
    """The rules that the user stated, word for word. Each waits until a second independent trace or
    a person confirms it: anybody could have written the message.
    """
    trace, context = trace_context.trace, trace_context.context
    return [
        MemoryDraft(
            kind=MemoryKind.STRATEGY,
            project_id=trace.project_id,
            content=fact.values["text"],
            tags=["correction", "strategy"],
            importance=IMPORTANCE,
            confidence=0.5,
            source=QUOTED_RULE_SOURCE,
            outcome=trace.outcome,
            session_id=trace.session_id,
            trace_id=trace.id,
            source_event_ids=list(fact.event_ids),
            metadata={
                TOOLS: [tool.name for tool in used_tools(context)],
                QUOTATIONS: [fact.values["text"]],
            },
            actor=f"engine:{QUOTED_RULE_SOURCE}",
            run_id=run_id,
            status=MemoryStatus.QUARANTINED,
            awaiting_confirmation=True,
        )
        for fact in facts_of(facts, FactKind.USER_RULE)
    ]
