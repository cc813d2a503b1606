"""The guard of lessons: what a tool, a user or a client wrote must not become advice by being
repeated.

Lessons go into the prompts of other agents, so anyone who can write into one field of one trace
could otherwise write into those. Every step that stores lessons passes them through
`guard_lessons`: advice that repeats outside text is quarantined until a second independent trace
teaches it or a person confirms it (`curation/confirmation.py` does the same for bullets), and a
report and the metadata show copied passages in quotation marks. Nothing is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.core.isolated_work import run_isolated
from memory_api.memories.editing import rewrite_memory
from memory_api.memories.index.drafts import ADVICE_KINDS, MemoryDraft, PreparedMemory
from memory_api.memories.queries import get_memory, list_linked_traces
from memory_api.memories.schemas import MemoryStatus
from memory_api.reflection.evidence import Evidence
from memory_api.text.quotations import (
    QUOTATIONS,
    find_quotations_of,
    has_address,
    has_instruction,
    is_field_name,
    is_safe_name,
    quote_passages_of,
    quote_values_of,
    words_of_name,
)
from memory_api.trace_analysis.analyze import ReflectionContext
from memory_api.trace_analysis.arguments import parse_arguments
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.tables import TraceRow

_QUOTATION_MARK = re.compile("[`'\"“”‘’「」『』]")


@dataclass(frozen=True)
class OutsideTexts:
    """All outside text behind some lessons of a tenant: what a lesson must not pass on as its own.
    `names` of tools, agents and arguments are no quotations, nor is a single word of the
    `documentation` of the tools.
    """

    texts: Sequence[str] = ()
    names: Collection[str] = ()
    documentation: Sequence[str] = ()
    tenant_id: UUID | str | None = None

    def quotations_in(self, advice: Collection[str]) -> Callable[[], dict[str, list[str]]]:
        """The work that finds the quotations in each text. A process of its own may execute it."""
        return partial(find_quotations_of, advice, list(self.texts), self.names, self.documentation)

    def comparison_size(self, texts: Collection[str], searches: int = 0) -> int:
        """The work of a comparison with these texts, in characters. For some of them, all outside
        text is searched again, which takes at most a sixteenth of the time of parsing it.
        """
        size = sum(len(text) + 100 for text in self.texts)
        return size + size * searches // 16 + sum(map(len, texts))


_NUMBER = re.compile(r"(?:[a-z]{1,9}[_:-])?[0-9a-f-]+", re.IGNORECASE)
"""An event ID that says nothing, such as e0001 or a UUID. Clients choose the IDs of events."""


def outside_texts_of(
    context: ReflectionContext,
    evidence: Evidence,
    trace: TraceRow | None = None,
    *,
    trusted: str = "",
) -> OutsideTexts:
    """The outside text of a trace and of the attempts it was compared with: every field that a
    client or a tool can fill, except the values of calls, which the agent chose, and names that are
    one word. Hints were noted for the task by earlier reflections, which may have copied them.
    `trusted` is the setting `HANSEI_TRUSTED_FEEDBACK`.
    """
    events = [*context.events, *(e for attempt in evidence.attempts for e in attempt.events)]
    documentation = [text for tool in context.tools for text in _strings(tool.description)]
    feedback = {
        "error": context.error,
        "ground_truth": evidence.ground_truth,
        "test_report": evidence.test_report,
    }
    fields = [
        *(context.task_description, context.task_goal, list(evidence.task_hints), documentation),
        *(value for name, value in feedback.items() if name not in trusted.split(",")),
    ]
    if trace is not None:
        fields += [trace.query, trace.generated_answer, trace.reasoning_steps, trace.metadata_]
    texts = [text for value in fields for text in _strings(value)]
    texts += [text for event in events for text in _texts_of_event(event)]
    names = {name for event in events for name in _names_in(event)}
    names |= {tool.name for tool in context.tools}
    safe_names = set(filter(is_safe_name, names))
    texts += names - safe_names
    safe_names |= {name for event in events for name in filter(is_field_name, _arguments_of(event))}
    return OutsideTexts(texts, safe_names, documentation, context.tenant_id)


def _names_in(event: Event) -> Iterator[str]:
    named = (event.metadata.get("tool"), event.metadata.get("tool_name"))
    for name in (event.tool_name, event.agent, *named):
        if isinstance(name, str) and name:
            yield name


def _arguments_of(event: Event) -> Iterable[str]:
    if event.event_type is not EventType.TOOL_CALL:
        return ()
    return parse_arguments(event.content, event.tool_name or "")


def _texts_of_event(event: Event) -> Iterator[str]:
    is_call = event.event_type is EventType.TOOL_CALL
    yield "\n".join(_arguments_of(event)) if is_call else event.content
    if event.event_id and not _NUMBER.fullmatch(event.event_id):
        yield event.event_id
        yield words_of_name(event.event_id)
    yield from _strings(event.error)
    yield from _strings(event.metadata)


def _strings(value: Any) -> Iterator[str]:
    """All strings in a JSON value, the names of its fields included."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if item:
                yield item
        elif isinstance(item, BaseModel):
            stack.append(item.model_dump())
        elif isinstance(item, Mapping):
            mapping = cast("Mapping[Any, Any]", item)
            stack += [*mapping.keys(), *mapping.values()]
        elif isinstance(item, list | tuple):
            stack += cast("Sequence[Any]", item)


async def guard_lessons(drafts: Sequence[MemoryDraft], outside: OutsideTexts) -> list[MemoryDraft]:
    """The drafts, which may be stored now. Advice that repeats outside text, or that comes with
    `quotations` in its metadata, waits for confirmation. Passages that a report, a tag, a keyword
    or the metadata copy are in quotation marks.
    """
    texts = list(outside.texts)
    advice = [draft.content for draft in drafts if draft.kind in ADVICE_KINDS]
    reports = {draft.content for draft in drafts if draft.kind not in ADVICE_KINDS}
    reports |= {word for draft in drafts for word in (*draft.tags, *draft.keywords)}
    values = {text for draft in drafts for text in _strings(_quotable(draft))}
    quotations: dict[str, list[str]] = {}
    quoted_values: dict[str, str] = {}
    if texts and advice:
        marks = sum(len(_QUOTATION_MARK.findall(text)) for text in advice)
        size = outside.comparison_size(advice, searches=marks // 2)
        quotations = await run_isolated(outside.quotations_in(advice), size, outside.tenant_id)
    quoted = await quote_reports(reports, outside)
    if texts and values:
        orders = sum(map(has_instruction, values))
        size = outside.comparison_size(values, searches=orders)
        work = partial(quote_values_of, values, texts)
        quoted_values = await run_isolated(work, size, outside.tenant_id)
    safe = [
        replace(
            draft,
            metadata=draft.metadata | _replace_strings(_quotable(draft), quoted_values),
            tags=[quoted.get(tag, tag) for tag in draft.tags],
            keywords=[quoted.get(word, word) for word in draft.keywords],
        )
        for draft in drafts
    ]
    return [
        _hold(draft, quotations.get(draft.content, ()))
        if draft.kind in ADVICE_KINDS
        else replace(draft, content=quoted.get(draft.content, draft.content))
        for draft in safe
    ]


async def quote_reports(reports: Collection[str], outside: OutsideTexts) -> dict[str, str]:
    """The reports, with what they repeat of outside text in quotation marks."""
    if not outside.texts or not reports:
        return {report: report for report in reports}
    work = partial(quote_passages_of, reports, list(outside.texts))
    return await run_isolated(work, outside.comparison_size(reports), outside.tenant_id)


def _quotable(draft: MemoryDraft) -> dict[str, Any]:
    """The metadata without the passages that it names as quotations, and without the task, which
    spec 5 stores as the client sent it.
    """
    verbatim = {QUOTATIONS, "task_description"}
    return {name: value for name, value in draft.metadata.items() if name not in verbatim}


def _replace_strings(value: Any, texts: Mapping[str, str]) -> Any:
    """A JSON value with other strings, the names of its fields included."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value).items()
        return {texts.get(name, name): _replace_strings(item, texts) for name, item in fields}
    if isinstance(value, list | tuple):
        return [_replace_strings(item, texts) for item in cast("Sequence[Any]", value)]
    return value


def _hold(draft: MemoryDraft, found: Sequence[str]) -> MemoryDraft:
    known: Any = draft.metadata.get(QUOTATIONS) or ()
    quotations = list(dict.fromkeys([*known, *found]))
    if not quotations:
        return replace(draft, is_guarded=True)
    return replace(
        draft,
        is_guarded=True,
        status=MemoryStatus.QUARANTINED,
        awaiting_confirmation=True,
        metadata=draft.metadata | {QUOTATIONS: quotations},
    )


async def confirm_repeated_advice(
    session: AsyncSession, memory_id: UUID, lesson: PreparedMemory
) -> None:
    """Activate a waiting lesson that this trace teaches again, if the trace is independent of those
    that taught it before. Only a person confirms an address.
    """
    memory = await get_memory(session, memory_id, for_update=True)
    if memory is None or not memory.awaiting_confirmation or lesson.draft.trace_id is None:
        return
    if has_address(memory.content):
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
