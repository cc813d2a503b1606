"""Lessons that quote what others wrote into a trace: tools, users, names of arguments.

Anyone who can write into one event of one trace could otherwise write into the prompts of other
agents. Such a lesson is stored as quarantined. A second independent trace with the same lesson, or
a person, activates it (`curation/confirmation.py` does the same for bullets).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.isolated_work import run_isolated
from memory_api.memories.editing import rewrite_memory
from memory_api.memories.index.drafts import MemoryDraft, PreparedMemory
from memory_api.memories.queries import get_memory, list_linked_traces
from memory_api.memories.schemas import MemoryKind, MemoryStatus
from memory_api.reflection.context import TraceContext, input_size
from memory_api.text.quotations import QUOTATIONS, find_quotations_of
from memory_api.trace_analysis.arguments import as_mapping, parse_arguments
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces
from memory_api.traces.schemas import Event, EventType

_OUTSIDE = frozenset((EventType.TOOL_RESPONSE, EventType.ERROR_EVENT, EventType.USER_MESSAGE))
_ADVICE = (MemoryKind.STRATEGY, MemoryKind.INSIGHT)


async def hold_quoting_advice(
    drafts: Sequence[MemoryDraft], trace_context: TraceContext
) -> list[MemoryDraft]:
    """The drafts; strategies and insights that quote outside text of the trace, or of the attempts
    they were compared with, are quarantined.
    """
    context, evidence = trace_context.context, trace_context.evidence
    events = [*context.events, *(e for attempt in evidence.attempts for e in attempt.events)]
    texts = [draft.content for draft in drafts if draft.kind in _ADVICE]
    if not texts:
        return list(drafts)
    names = {event.tool_name for event in events if event.tool_name}
    names |= {tool.name for tool in context.tools}
    names |= {event.agent for event in events if event.agent}
    work = partial(find_quotations_of, texts, _outside_texts(events), names)
    quotations = await run_isolated(work, input_size(context, evidence))
    return [_hold(draft, quotations.get(draft.content, [])) for draft in drafts]


def _outside_texts(events: Iterable[Event]) -> list[str]:
    """What tools and users wrote, and names of arguments. The values are the agent's."""
    texts: list[str] = []
    for event in events:
        if event.event_type in _OUTSIDE:
            texts.append(event.content)
        elif event.event_type == EventType.TOOL_CALL:
            texts.append("\n".join(parse_arguments(event.content, event.tool_name or "")))
        error: Any = event.error  # of a stored event: a mapping
        if error is not None:
            fields = as_mapping(error) if isinstance(error, dict) else error.model_dump()
            texts.append(str(fields.get("error_message") or ""))
    return texts


def _hold(draft: MemoryDraft, quotations: Sequence[str]) -> MemoryDraft:
    if draft.kind not in _ADVICE or not quotations:
        return draft
    return replace(
        draft,
        status=MemoryStatus.QUARANTINED,
        awaiting_confirmation=True,
        metadata=draft.metadata | {QUOTATIONS: list(quotations)},
    )


async def confirm_quoting_advice(
    session: AsyncSession, memory_id: UUID, lesson: PreparedMemory
) -> None:
    """Activate a waiting lesson that this trace teaches again, if the trace is independent of those
    that taught it before.
    """
    memory = await get_memory(session, memory_id, for_update=True)
    if memory is None or not memory.awaiting_confirmation or lesson.draft.trace_id is None:
        return
    traces = {*await list_linked_traces(session, memory_id, "derived_from"), lesson.draft.trace_id}
    if await count_independent_traces(session, traces) < MIN_INDEPENDENT_TRACES:
        return
    fields = {"content": lesson.draft.content, "status": MemoryStatus.ACTIVE}
    await rewrite_memory(
        session,
        memory,
        lesson,
        fields,
        reason=f"Confirmed by trace {lesson.draft.trace_id}.",
        actor=lesson.draft.actor,
        run_id=lesson.draft.run_id,
    )
