"""What a trace becomes: an episode, a reflection with its strategies, strategies from comparing the
attempts at its task, and rules that the user stated. Pure.

A task has at most `MAX_LESSONS_PER_TASK` lessons from comparisons. A later attempt that supports
one again gives the same text, which is counted as another observation of the stored lesson.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from memory_api.core.ids import new_id
from memory_api.memories.index.drafts import MemoryDraft
from memory_api.memories.schemas import MemoryKind
from memory_api.reflection.context import TOOLS, ReflectionInput, TaskLesson, used_tools
from memory_api.reflection.model_output import ACTIONS, REMEDIES
from memory_api.reflection.rules import (
    Strategy,
    context_language,
    error_category_of,
    find_differences,
    rule_tags,
)
from memory_api.reflection.schemas import ReflectionResult
from memory_api.runs.chain import IMPORTANCE
from memory_api.text.excerpts import excerpt
from memory_api.text.quotations import QUOTATIONS
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.facts import Fact, FactKind, facts_of
from memory_api.traces.schemas import EventType, OutcomeType

SOURCE = "reflection_engine_v2"
STRATEGY_IMPORTANCE_FACTOR = 1.1
MAX_LESSONS_PER_TASK = 3
TASK_LESSON_IMPORTANCE = 0.8
COMPARISON_SOURCE = "contrast"
QUOTED_RULE_SOURCE = "user_rule"
"""Source of a lesson that is a user's own words."""
MAX_EPISODE_PART = 600
"""Characters of the task and of the last message in an episode."""
MAX_EPISODE_TOOLS = 8


def reflection_drafts(
    result: ReflectionResult,
    *,
    project_id: str,
    session_id: str | None = None,
    context: ReflectionContext | None = None,
    trace_id: UUID | None = None,
    run_id: UUID | None = None,
) -> list[MemoryDraft]:
    """The reflection and a strategy for each of its rules: with the tag `strategy` and 10 % more
    importance, at most 1. The reflection's metadata contain what is not a rule.
    """
    notes = {
        "task_hint": result.task_hint,
        "cause_kind": result.cause_kind,
        "root_cause": result.root_cause,
    }
    reflection = MemoryDraft(
        kind=MemoryKind.REFLECTION,
        project_id=project_id,
        content=result.reflection_text,
        tags=result.tags,
        importance=result.importance,
        confidence=result.confidence,
        source=SOURCE,
        error_category=result.error_category.value if result.error_category else None,
        outcome=context.known_outcome if context else result.metadata.get("outcome"),
        session_id=session_id,
        trace_id=trace_id,
        source_event_ids=result.source_event_ids,
        metadata=result.metadata | {name: note for name, note in notes.items() if note},
        actor=f"engine:{SOURCE}",
        run_id=run_id,
    )
    first = [result.strategy_text] if result.strategy_text else []
    strategies = [
        replace(
            reflection,
            id=new_id(),
            kind=MemoryKind.STRATEGY,
            content=rule,
            tags=[*(tag for tag in result.tags if tag != "strategy"), "strategy"][-64:],
            importance=min(1.0, result.importance * STRATEGY_IMPORTANCE_FACTOR),
            metadata=_strategy_metadata(result, rule),
        )
        for rule in dict.fromkeys([*first, *result.rules])
    ]
    return [reflection, *strategies]


def _strategy_metadata(result: ReflectionResult, rule: str) -> dict[str, Any]:
    """The metadata of the reflection with the `remedy` of one rule in place of those of all."""
    metadata = {name: value for name, value in result.metadata.items() if name != ACTIONS}
    remedies: dict[str, str] = metadata.pop(REMEDIES, {})
    return metadata | ({"remedy": remedies[rule]} if rule in remedies else {})


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


def comparison_drafts(input: ReflectionInput, facts: Sequence[Fact]) -> list[MemoryDraft]:
    """What successful attempts at the task of this run did and failed ones did not; none without a
    task key.
    """
    if input.trace.task_key is None:
        return []
    differences = find_differences(context_language(input.context), facts)
    drafts: list[MemoryDraft] = []
    for strategy in choose_differences(differences, input.task_knowledge.lessons):
        assert strategy.fact is not None
        values = strategy.fact.values
        attempts = values["successful"] + values["failed"]
        drafts.append(
            _task_draft(
                input,
                strategy.fact,
                strategy.text,
                tags=["contrast", "strategy"],
                confidence=1 - 1 / (1 + attempts),
                source=COMPARISON_SOURCE,
                metadata={
                    "of_group": True,
                    "task_key": input.trace.task_key,
                    "difference": strategy.kind,
                    "attempts": attempts,
                },
            )
        )
    return drafts


def user_rule_drafts(input: ReflectionInput, facts: Sequence[Fact]) -> list[MemoryDraft]:
    """The rules that the user stated, word for word. Each is a quotation, so it waits until a
    second independent trace or a person confirms it: anybody could have written the message.
    """
    return [
        _task_draft(
            input,
            fact,
            fact.values["text"],
            tags=["correction", "strategy"],
            confidence=0.5,
            source=QUOTED_RULE_SOURCE,
            metadata={QUOTATIONS: [fact.values["text"]]},
        )
        for fact in facts_of(facts, FactKind.USER_RULE)
    ]


def _task_draft(
    input: ReflectionInput,
    fact: Fact,
    text: str,
    *,
    source: str,
    metadata: Mapping[str, Any],
    **fields: Any,
) -> MemoryDraft:
    """A strategy that follows from one fact."""
    return MemoryDraft(
        kind=MemoryKind.STRATEGY,
        content=text,
        importance=TASK_LESSON_IMPORTANCE,
        source=source,
        source_event_ids=list(fact.event_ids),
        metadata={TOOLS: [tool.name for tool in used_tools(input.context)], **metadata},
        actor=f"engine:{source}",
        run_id=input.run.id,
        **_origin(input),
        **fields,
    )


def _origin(input: ReflectionInput) -> dict[str, Any]:
    trace = input.trace
    return {
        "project_id": trace.project_id,
        "session_id": trace.session_id,
        "trace_id": trace.id,
        "outcome": input.context.known_outcome,
    }


def episode_draft(input: ReflectionInput, facts: Sequence[Fact]) -> MemoryDraft:
    """A memory of what was asked and how it ended, in the trace's words; a trace has one. Its
    importance comes from the evaluation; without one, the outcome decides. Error category and tags
    are those of a reflection by rules.
    """
    trace, context = input.trace, input.context
    importance: float | None = input.run.input.get(IMPORTANCE)
    category = error_category_of(facts, context)
    by_outcome = 0.3 if context.outcome is OutcomeType.SUCCESS else 0.6
    return MemoryDraft(
        kind=MemoryKind.EPISODE,
        content=episode_text(context),
        importance=by_outcome if importance is None else importance,
        source="trace",
        tags=rule_tags(facts, context)[0 if context.outcome_is_known else 1 :],
        error_category=category.value if category else None,
        metadata={"event_count": len(context.events), "task_key": trace.task_key},
        key=str(trace.id),
        **_origin(input),
    )


def episode_text(context: ReflectionContext) -> str:
    """The task, the outcome, the tools with the number of their calls, and the last message."""
    events = context.events
    asked = (event.content for event in events if event.event_type is EventType.USER_MESSAGE)
    request = context.task_description or next(asked, "") or context.task_goal or ""
    calls = [event for event in events if event.event_type is EventType.TOOL_CALL]
    tools = Counter(event.tool_name for event in calls if event.tool_name)
    most_used = ", ".join(
        f"{name} ×{count}" for name, count in tools.most_common(MAX_EPISODE_TOOLS)
    )
    ends = (EventType.LLM_RESPONSE, EventType.ERROR_EVENT, EventType.TOOL_RESPONSE)
    said = (event.content for event in reversed(events) if event.event_type in ends)
    lines = [
        excerpt(request, MAX_EPISODE_PART),
        f"Outcome: {context.outcome_text}; {len(events)} events.",
        f"Tools: {most_used}." if most_used else "",
        excerpt(next(filter(None, said), ""), MAX_EPISODE_PART),
    ]
    return "\n".join(line for line in lines if line)
