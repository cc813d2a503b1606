"""The messages of a model call, from the attributes of its span. Pure.

Reads the semantic conventions of OpenTelemetry for generative AI (message attributes, and the older
span events), OpenLLMetry (`gen_ai.prompt.0.content`) and OpenInference
(`llm.input_messages.0.message.content`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from memory_api.traces.otlp.decoding import Attributes, Span, parse_json_text

Message = Mapping[str, Any]
"""A message of a chat API: `role`, `content`, `tool_calls`, `tool_call_id`."""

_INDEXED = re.compile(
    r"(?:(gen_ai\.prompt|llm\.input_messages)|(gen_ai\.completion|llm\.output_messages))"
    r"\.(\d{1,6})\.(?:message\.)?(.+)"
)
_INDEXED_CALL = re.compile(
    r"tool_calls\.(\d{1,6})\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)"
)
_INDEXED_PART = re.compile(r"contents\.(\d{1,6})\.message_content\.text")
_EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
_DETAILS_EVENT = "gen_ai.client.inference.operation.details"


@dataclass(frozen=True)
class Messages:
    inputs: list[Message]
    outputs: list[Message]


def read_messages(span: Span) -> Messages:
    """The messages of a span; none if the instrumentation does not record contents."""
    attributes = dict(span.attributes)
    for name, values in span.events:
        if name == _DETAILS_EVENT:
            attributes |= values
    system = _convention(attributes.get("gen_ai.system_instructions"), "system")
    inputs = _convention(attributes.get("gen_ai.input.messages"), "user")
    outputs = _convention(attributes.get("gen_ai.output.messages"), "assistant")
    if not inputs and not outputs:
        inputs, outputs = _indexed(attributes)
    if not inputs and not outputs:
        inputs, outputs = _span_events(span)
    return Messages(system + inputs, outputs)


def read_tool_message(value: Any) -> tuple[Any, str | None]:
    """The content and the call ID of a tool's result that is a serialized message of LangChain
    (OpenInference); other values unchanged, without an ID.
    """
    message = parse_json_text(value)
    if not isinstance(message, Mapping):
        return value, None
    fields = _langchain_fields(cast(Message, message))
    call_id = fields.get("tool_call_id")
    if fields.get("type") != "tool" or not isinstance(call_id, str):
        return value, None
    return fields.get("content"), call_id


def read_graph_state(value: Any, roles: frozenset[str]) -> Any:
    """The content of the last message of `roles`, if the input or output of a run is the state of a
    LangGraph (`{"messages": [...]}`); other values unchanged.
    """
    state = parse_json_text(value)
    messages = cast(Message, state).get("messages") if isinstance(state, Mapping) else None
    for message in reversed(_list(messages)):
        match message:
            case [str(role), content] if role in roles:
                return content
            case Mapping():
                fields = _langchain_fields(cast(Message, message))
                if (fields.get("role") or fields.get("type")) in roles:
                    return _text(fields.get("content"))
            case _:
                pass
    return value


def _langchain_fields(message: Message) -> Message:
    """The fields of a message, which LangChain nests in `data` or `kwargs`."""
    nested = message.get("data") or message.get("kwargs")
    return cast(Message, nested) if isinstance(nested, Mapping) else message


def _convention(value: Any, default_role: str) -> list[Message]:
    """`gen_ai.input.messages` and the like: JSON text, or structured values."""
    items = parse_json_text(value)
    if isinstance(items, str):
        return [{"role": default_role, "content": items}] if items else []
    found: list[Message] = []
    loose: list[Any] = []  # system instructions are parts without a message
    for item in _list(items):
        if isinstance(item, Mapping) and "role" not in item and "parts" not in item:
            loose.append(item)
        elif isinstance(item, Mapping):
            found += _convention_message(cast(Message, item), default_role)
    return _convention_message({"parts": loose}, default_role) + found if loose else found


def _convention_message(item: Message, default_role: str) -> list[Message]:
    role = str(item.get("role") or default_role)
    texts: list[str] = []
    calls: list[Message] = []
    results: list[Message] = []
    parts = _list(item.get("parts")) or [item.get("content")]
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        if not isinstance(part, Mapping):
            continue
        values = cast(Message, part)
        match values.get("type"):
            case "tool_call":
                calls.append(values)
            case "tool_call_response":
                content = values.get("response", values.get("result"))
                results.append(
                    {"role": "tool", "tool_call_id": values.get("id"), "content": content}
                )
            case _:
                content = values.get("content", values.get("text"))
                if isinstance(content, str):
                    texts.append(content)
    if not texts and not calls:
        return results
    text = "\n".join(texts)
    return [
        {"role": role, "content": text, "tool_calls": calls, "name": item.get("name")},
        *results,
    ]


def _indexed(attributes: Attributes) -> tuple[list[Message], list[Message]]:
    """`gen_ai.prompt.0.content` of OpenLLMetry, `llm.input_messages.0.message.content` of
    OpenInference.
    """
    sides: tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]] = ({}, {})
    for key, value in attributes.items():
        match = _INDEXED.fullmatch(key)
        if match is None:
            continue
        side = sides[0] if match[1] else sides[1]
        _set_field(side.setdefault(int(match[3]), {}), match[4], value)
    inputs, outputs = ([side[index] for index in sorted(side)] for side in sides)
    return [_finish(item, "user") for item in inputs], [
        _finish(item, "assistant") for item in outputs
    ]


def _set_field(message: dict[str, Any], name: str, value: Any) -> None:
    if call := _INDEXED_CALL.fullmatch(name):
        message.setdefault("calls", {}).setdefault(int(call[1]), {})[call[2]] = value
    elif part := _INDEXED_PART.fullmatch(name):
        message.setdefault("parts", {})[int(part[1])] = value
    else:
        message[name] = value


def _finish(message: dict[str, Any], default_role: str) -> Message:
    calls: dict[int, Any] = message.pop("calls", {})
    parts: dict[int, Any] = message.pop("parts", {})
    content = parse_json_text(message.get("content"))
    if parts:
        content = "\n".join(str(parts[index]) for index in sorted(parts))
    return {
        "role": message.get("role") or default_role,
        "content": _text(content),
        "tool_calls": [calls[index] for index in sorted(calls)],
        "tool_call_id": message.get("tool_call_id"),
        "name": message.get("name"),
    }


def _text(content: Any) -> object:
    """The text of a content that is a list of text blocks; other values unchanged."""
    if not isinstance(content, list):
        return content
    blocks = cast("list[Any]", content)
    texts = [
        str(cast(Message, block)["text"])
        for block in blocks
        if isinstance(block, Mapping) and "text" in block
    ]
    return "\n".join(texts) if texts else blocks


def _span_events(span: Span) -> tuple[list[Message], list[Message]]:
    """`gen_ai.user.message`, `gen_ai.choice` and the like."""
    inputs: list[Message] = []
    outputs: list[Message] = []
    for name, values in span.events:
        if name == "gen_ai.content.prompt":
            inputs += _convention(values.get("gen_ai.prompt"), "user")
        elif name == "gen_ai.content.completion":
            outputs += _convention(values.get("gen_ai.completion"), "assistant")
        elif role := _EVENT_ROLES.get(name):
            inner = parse_json_text(values.get("message"))
            fields: Message = (
                {**values, **cast(Message, inner)} if isinstance(inner, Mapping) else values
            )
            message = {
                "role": role,
                "content": fields.get("content"),
                "tool_calls": [_flat_call(call) for call in _objects(fields.get("tool_calls"))],
                "tool_call_id": fields.get("id"),
            }
            (outputs if name == "gen_ai.choice" else inputs).append(message)
    return inputs, outputs


def _flat_call(call: Message) -> Message:
    function = call.get("function")
    return {**call, **cast(Message, function)} if isinstance(function, Mapping) else call


def _objects(value: Any) -> Iterator[Message]:
    for item in _list(parse_json_text(value)):
        if isinstance(item, Mapping):
            yield cast(Message, item)


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
