"""Turns spans of generative AI into events of a trace. Pure.

A model call repeats the conversation so far, so the same message, tool call and result occur in
many spans. Each event has an ID that is equal wherever the same thing is reported: the ID of its
tool call, or a hash of the message and how often it occurred before in the conversation.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import Any

from memory_api.core.json_input import replace_unstorable
from memory_api.core.schemas import MAX_NAME_LENGTH
from memory_api.traces.otlp.chat_messages import (
    Message,
    read_graph_state,
    read_messages,
    read_tool_message,
)
from memory_api.traces.otlp.decoding import Span
from memory_api.traces.schemas import Event, EventType, OutcomeType

SOURCE = "opentelemetry"
"""`metadata.source` of traces made of spans."""
_PREFIXES = ("gen_ai.", "llm.", "traceloop.", "openinference.", "hansei.")
_TOOL_KINDS = frozenset({"execute_tool", "tool"})
_MODEL_KINDS = frozenset({"chat", "text_completion", "generate_content", "completion", "llm"})
_GROUPING_KINDS = frozenset({"invoke_agent", "create_agent", "agent", "workflow", "chain", "task"})
_KIND_KEYS = ("gen_ai.operation.name", "traceloop.span.kind", "openinference.span.kind")
_SESSION_KEYS = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
)
_INPUT_KEYS = ("traceloop.entity.input", "input.value")
_OUTPUT_KEYS = ("traceloop.entity.output", "output.value", "final_result")  # pydantic-ai: the last
_USER_ROLES, _AGENT_ROLES = frozenset({"user", "human"}), frozenset({"assistant", "ai"})
_USAGE_KEYS = {
    "model": ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
    "input_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
}
_ROLES = {
    "user": EventType.USER_MESSAGE,
    "human": EventType.USER_MESSAGE,
    "assistant": EventType.LLM_RESPONSE,
    "ai": EventType.LLM_RESPONSE,
    "model": EventType.LLM_RESPONSE,
    "tool": EventType.TOOL_RESPONSE,
    "function": EventType.TOOL_RESPONSE,
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUTCOMES = frozenset(OutcomeType)


@dataclass
class SpanGroup:
    """The spans of one agent run in one request. `has_ended` if its root span is among them."""

    key: str
    session_id: str | None = None
    spans: list[Span] = field(default_factory=list[Span])
    has_ended: bool = False
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the trace that the spans state."""

    @property
    def external_id(self) -> str:
        return f"otel:{self.key}"[:MAX_NAME_LENGTH]

    @cached_property
    def events(self) -> list[Event]:
        """The events of the spans in the order of their time, each ID once."""
        found: dict[str, tuple[int, Event]] = {}
        for span in self.spans:
            for nanoseconds, event in span_events(span):
                assert event.event_id is not None
                known = found.get(event.event_id)
                if known is None or nanoseconds < known[0]:
                    found[event.event_id] = (nanoseconds, event)
        return [event for _, event in sorted(found.values(), key=lambda pair: pair[0])]


@dataclass(frozen=True)
class GroupedSpans:
    """The agent runs of a request. `ignored` spans have no attributes of generative AI.
    `ended_roots` are OpenTelemetry trace IDs whose root is such a span.
    """

    groups: list[SpanGroup]
    ignored: int
    ended_roots: set[str]


def group_spans(spans: Iterable[Span]) -> GroupedSpans:
    """Spans by trace ID. A model call without a parent belongs to its conversation, if it has one:
    then each call is an OpenTelemetry trace of its own.
    """
    groups: dict[str, SpanGroup] = {}
    ignored, ended_roots = 0, set[str]()
    for span in spans:
        if not is_genai(span) or not span.trace_id:
            ignored += 1
            if span.trace_id and not span.parent_id:
                ended_roots.add(span.trace_id)
            continue
        session_id = _first_text(span, _SESSION_KEYS)
        is_lone_call = not span.parent_id and span_kind(span) in _MODEL_KINDS
        key = f"conversation:{session_id}" if is_lone_call and session_id else span.trace_id
        group = groups.setdefault(key, SpanGroup(key))
        group.spans.append(span)
        group.session_id = group.session_id or (session_id and session_id[:MAX_NAME_LENGTH])
        group.has_ended |= not span.parent_id and key == span.trace_id
        _read_fields(group, span)
    for group in groups.values():
        group.has_ended |= group.key in ended_roots
    return GroupedSpans(list(groups.values()), ignored, ended_roots)


def is_genai(span: Span) -> bool:
    """Whether the span itself describes generative AI. The attribute `hansei.*` of a resource alone
    does not.
    """
    names = [name for name in span.attributes if name.startswith(_PREFIXES)]
    return any(not name.startswith("hansei.") for name in names)


def span_kind(span: Span) -> str:
    """The operation in lower case; "" if unknown."""
    for key in _KIND_KEYS:
        if isinstance(value := span.attributes.get(key), str) and value:
            return value.lower()
    if "gen_ai.request.model" in span.attributes or "llm.model_name" in span.attributes:
        return "chat"
    return "tool" if "gen_ai.tool.name" in span.attributes else ""


def _read_fields(group: SpanGroup, span: Span) -> None:
    attributes = span.attributes
    for name in ("playbook", "project_id", "task_key", "retrieval_id"):
        if isinstance(value := attributes.get(f"hansei.{name}"), str) and value:
            group.fields[name] = value[:MAX_NAME_LENGTH]
    if isinstance(task := attributes.get("hansei.task"), str) and task:
        group.fields["task_description"] = task
    outcome = attributes.get("hansei.outcome")
    if isinstance(outcome, str) and outcome in _OUTCOMES:
        group.fields["outcome"] = outcome
    if not span.parent_id:
        _read_root(group, span)


def _read_root(group: SpanGroup, span: Span) -> None:
    """The outcome, the input and the output of an agent run. Only an error is an outcome: the
    status OK means that no exception left the span.
    """
    if span.error is not None:
        group.fields.setdefault("outcome", "error")
        group.fields["error"] = {"error_message": span.error}
    if span_kind(span) in _GROUPING_KINDS:
        for name, keys, roles in (
            ("query", _INPUT_KEYS, _USER_ROLES),
            ("generated_answer", _OUTPUT_KEYS, _AGENT_ROLES),
        ):
            if text := _to_text(read_graph_state(_first(span, keys), roles)):
                group.fields[name] = text


def span_events(span: Span) -> Iterator[tuple[int, Event]]:
    """(nanoseconds, event) of what a span reports."""
    kind = span_kind(span)
    agent = _name(span.attributes.get("gen_ai.agent.name"))
    if kind in _TOOL_KINDS:
        yield from _tool_events(span, agent)
    elif kind in _MODEL_KINDS or kind in _GROUPING_KINDS:
        yield from _message_events(span, agent, is_model=kind in _MODEL_KINDS)
    if span.error is not None and kind not in _TOOL_KINDS:
        event_id, error = f"{span.span_id}:error", {"message": span.error}
        yield (
            span.ended_at,
            _event(
                EventType.ERROR_EVENT, span.error, event_id, span.ended_at, agent=agent, error=error
            ),
        )


def _tool_events(span: Span, agent: str | None) -> Iterator[tuple[int, Event]]:
    attributes = span.attributes
    keys = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
    name = _name(_first_text(span, keys)) or span.name or "unknown"
    arguments = attributes.get("gen_ai.tool.call.arguments") or attributes.get("tool.parameters")
    if arguments is None:
        arguments = _first(span, _INPUT_KEYS)
    result = attributes.get("gen_ai.tool.call.result")
    if result is None:
        result = _first(span, _OUTPUT_KEYS)
    result, message_id = read_tool_message(result)
    keys = ("gen_ai.tool.call.id", "tool_call.id")
    call_id = _first_text(span, keys) or message_id or span.span_id
    yield span.started_at, _call_event(name, call_id, arguments, span.started_at, agent)
    error = {"message": span.error} if span.error is not None else None
    text = _to_text(result) or span.error or ""
    yield (
        span.ended_at,
        _event(
            EventType.TOOL_RESPONSE,
            text,
            f"result:{call_id}",
            span.ended_at,
            agent=agent,
            tool_name=name,
            error=error,
            metadata={"call_id": call_id},
        ),
    )


def _message_events(
    span: Span, agent: str | None, *, is_model: bool
) -> Iterator[tuple[int, Event]]:
    messages = read_messages(span)
    seen = Counter[str]()
    tool_names: dict[str, str] = {}
    usage = _usage(span) if is_model else {}
    for side, time, extra in (
        (_pair_results(messages.inputs), span.started_at, {}),
        (messages.outputs, span.ended_at, usage),
    ):
        for message in side:
            for event in _events_of(message, seen, tool_names, time, agent, extra):
                yield time, event
    if is_model and not messages.inputs and not messages.outputs:
        yield (
            span.started_at,
            _event(
                EventType.LLM_CALL,
                "",
                f"{span.span_id}:call",
                span.started_at,
                agent=agent,
                metadata=usage,
            ),
        )


def _pair_results(messages: Sequence[Message]) -> Iterator[Message]:
    """Give a result whose ID no call has the ID of the first call before it that has no result.

    OpenLLMetry 0.62 writes two IDs of the Responses API: that of the item for the call, that of the
    call for its result.
    """
    answered = {message.get("tool_call_id") for message in messages}
    called: set[str] = set()
    waiting: deque[str] = deque()
    for message in messages:
        identities = [str(call.get("id") or "") for call in message.get("tool_calls") or ()]
        called.update(identities)
        waiting += [identity for identity in identities if identity and identity not in answered]
        call_id = message.get("tool_call_id")
        if call_id and call_id not in called and waiting:
            yield {**message, "tool_call_id": waiting.popleft()}
        else:
            yield message


def _events_of(
    message: Message,
    seen: Counter[str],
    tool_names: dict[str, str],
    time: int,
    agent: str | None,
    metadata: Mapping[str, Any],
) -> Iterator[Event]:
    kind = _ROLES.get(str(message.get("role")).lower(), EventType.SYSTEM_EVENT)
    text = _to_text(message.get("content"))
    call_id = message.get("tool_call_id")
    if kind is EventType.TOOL_RESPONSE and isinstance(call_id, str) and call_id:
        tool = tool_names.get(call_id) or _name(message.get("name"))
        given = {"call_id": call_id}
        event_id = f"result:{call_id}"
        yield _event(kind, text, event_id, time, agent=agent, tool_name=tool, metadata=given)
        return
    if text.strip():
        digest = sha256(f"{kind}\0{text}".encode()).hexdigest()[:32]
        seen[digest] += 1
        event_id = f"{digest}:{seen[digest]}"
        yield _event(kind, text, event_id, time, agent=agent, metadata=metadata)
    for call in message.get("tool_calls") or ():
        name, identity = _name(call.get("name")) or "unknown", str(call.get("id") or "")
        if not identity:
            content = f"{name}\0{_to_text(call.get('arguments'))}"
            seen[content] += 1
            identity = f"{sha256(content.encode()).hexdigest()[:32]}:{seen[content]}"
        tool_names[identity] = name
        yield _call_event(name, identity, call.get("arguments"), time, agent)


def _call_event(name: str, call_id: str, arguments: Any, time: int, agent: str | None) -> Event:
    return _event(
        EventType.TOOL_CALL,
        _to_text(arguments),
        f"call:{call_id}",
        time,
        agent=agent,
        tool_name=name[:MAX_NAME_LENGTH],
        metadata={"call_id": call_id},
    )


def _event(
    kind: EventType,
    content: str,
    event_id: str,
    time: int,
    *,
    agent: str | None,
    tool_name: str | None = None,
    error: dict[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Event:
    return Event(
        event_id=replace_unstorable(event_id)[:MAX_NAME_LENGTH],
        event_type=kind,
        content=content,
        timestamp=_time(time),
        agent=agent,
        tool_name=tool_name and replace_unstorable(tool_name)[:MAX_NAME_LENGTH],
        error=error,
        metadata={
            name: replace_unstorable(value) if isinstance(value, str) else value
            for name, value in (metadata or {}).items()
        },
    )


def _usage(span: Span) -> dict[str, Any]:
    values = {name: _first(span, keys) for name, keys in _USAGE_KEYS.items()}
    return {name: value for name, value in values.items() if value is not None}


def _time(nanoseconds: int) -> datetime | None:
    if not nanoseconds:
        return None
    try:
        return _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    except OverflowError:
        return None


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return replace_unstorable(text)


def _first(span: Span, keys: tuple[str, ...]) -> Any:
    return next((span.attributes[key] for key in keys if key in span.attributes), None)


def _first_text(span: Span, keys: tuple[str, ...]) -> str | None:
    value = next((span.attributes[key] for key in keys if span.attributes.get(key)), None)
    return value if isinstance(value, str) else None


def _name(value: Any) -> str | None:
    return value[:MAX_NAME_LENGTH] if isinstance(value, str) and value else None
