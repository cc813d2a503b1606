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
from enum import StrEnum
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
from memory_api.trace_analysis.arguments import parse_arguments
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.traces.duplicates import MIN_INDEPENDENT_TRACES, count_independent_traces
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.tables import TraceRow


class Origin(StrEnum):
    """Who wrote a text. `error`, `ground_truth` and `test_report` are feedback on a run, which
    `HANSEI_TRUSTED_FEEDBACK` may name.
    """

    TOOL = "tool"
    USER = "user"
    AGENT = "agent"
    SYSTEM = "system"
    ERROR = "error"
    GROUND_TRUTH = "ground_truth"
    TEST_REPORT = "test_report"
    METADATA = "metadata"
    MEMORY = "memory"


_QUOTATION_MARK = re.compile("[`'\"“”‘’「」『』]")


@dataclass(frozen=True)
class OutsideText:
    """A text that a lesson must not pass on as its own."""

    origin: Origin
    text: str


@dataclass(frozen=True)
class OutsideTexts:
    """All outside text behind some lessons of a tenant. `names` of tools, agents and arguments are
    no quotations, nor is a single word of the `documentation` of the tools.
    """

    texts: Sequence[OutsideText] = ()
    names: Collection[str] = ()
    documentation: Sequence[str] = ()
    tenant_id: UUID | str | None = None

    def quotations_in(self, advice: Collection[str]) -> Callable[[], dict[str, list[str]]]:
        """The work that finds the quotations in each text. A process of its own may execute it."""
        texts = [item.text for item in self.texts]
        return partial(find_quotations_of, advice, texts, self.names, self.documentation)

    def comparison_size(self, texts: Collection[str], searches: int = 0) -> int:
        """The work of a comparison with these texts, in characters. For some of them, all outside
        text is searched again, which takes at most a sixteenth of the time of parsing it.
        """
        size = sum(len(item.text) + 100 for item in self.texts)
        return size + size * searches // 16 + sum(map(len, texts))

    def without(self, trusted: Collection[str]) -> OutsideTexts:
        """Without the texts of trusted origins."""
        return replace(self, texts=[item for item in self.texts if item.origin not in trusted])


_ORIGIN_OF_EVENT = {
    EventType.TOOL_RESPONSE: Origin.TOOL,
    EventType.ERROR_EVENT: Origin.TOOL,
    EventType.USER_MESSAGE: Origin.USER,
    EventType.LLM_CALL: Origin.AGENT,
    EventType.LLM_RESPONSE: Origin.AGENT,
    EventType.SYSTEM_EVENT: Origin.SYSTEM,
}


_NUMBER = re.compile(r"(?:[a-z]{1,9}[_:-])?[0-9a-f-]+", re.IGNORECASE)
"""An event ID that says nothing, such as e0001 or a UUID. Clients choose the IDs of events."""


def outside_texts_of(
    context: ReflectionContext, evidence: Evidence, trace: TraceRow | None = None
) -> OutsideTexts:
    """The outside text of a trace and of the attempts it was compared with: every field that a
    client or a tool can fill, except the values of calls, which the agent chose, and names that are
    one word. Hints were noted for the task by earlier reflections, which may have copied them.
    """
    events = [*context.events, *(e for attempt in evidence.attempts for e in attempt.events)]
    documentation = [text for tool in context.tools for text in _strings(tool.description)]
    fields: dict[Origin, Sequence[Any]] = {
        Origin.USER: (context.task_description, context.task_goal),
        Origin.ERROR: (context.error,),
        Origin.GROUND_TRUTH: (evidence.ground_truth,),
        Origin.TEST_REPORT: (evidence.test_report,),
        Origin.TOOL: (documentation,),
        Origin.MEMORY: (list(evidence.task_hints),),
    }
    if trace is not None:
        fields[Origin.USER] = (*fields[Origin.USER], trace.query)
        fields[Origin.AGENT] = (trace.generated_answer, trace.reasoning_steps)
        fields[Origin.METADATA] = (trace.metadata_,)
    texts = [
        OutsideText(origin, text)
        for origin, values in fields.items()
        for value in values
        for text in _strings(value)
    ]
    texts += [text for event in events for text in _texts_of_event(event)]
    names = {name for event in events for name in _names_in(event)}
    names |= {tool.name for tool in context.tools}
    texts += [OutsideText(Origin.TOOL, name) for name in names if not is_safe_name(name)]
    safe_names = {name for name in names if is_safe_name(name)}
    safe_names |= {name for event in events for name in filter(is_field_name, _arguments_of(event))}
    return OutsideTexts(texts, safe_names, documentation, context.tenant_id)


def _names_in(event: Event) -> Iterator[str]:
    named = (event.metadata.get("tool"), event.metadata.get("tool_name"))
    for name in (event.tool_name, event.agent, *named):
        if isinstance(name, str) and name:
            yield name


def _arguments_of(event: Event) -> Iterable[str]:
    """The paths of the arguments of a call."""
    if event.event_type is not EventType.TOOL_CALL:
        return ()
    return parse_arguments(event.content, event.tool_name or "")


def _texts_of_event(event: Event) -> Iterator[OutsideText]:
    if event.event_type is EventType.TOOL_CALL:
        yield OutsideText(Origin.TOOL, "\n".join(_arguments_of(event)))
    else:
        yield OutsideText(_ORIGIN_OF_EVENT[event.event_type], event.content)
    if event.event_id and not _NUMBER.fullmatch(event.event_id):
        yield OutsideText(Origin.METADATA, event.event_id)
        yield OutsideText(Origin.METADATA, words_of_name(event.event_id))
    for text in _strings(event.error):
        yield OutsideText(Origin.TOOL, text)
    for text in _strings(event.metadata):
        yield OutsideText(Origin.METADATA, text)


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
    texts = [item.text for item in outside.texts]
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
    texts = [item.text for item in outside.texts]
    if not texts or not reports:
        return {report: report for report in reports}
    work = partial(quote_passages_of, reports, texts)
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
