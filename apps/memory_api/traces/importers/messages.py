"""Converts the messages of a transcript to events. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from memory_api.core.schemas import MAX_NAME_LENGTH
from memory_api.traces.importers.session_lines import (
    AGENT_KEY,
    API_ERROR_ROLE,
    Message,
    is_object,
)
from memory_api.traces.schemas import Event, EventType

_ROLES = {
    "assistant": EventType.LLM_RESPONSE,
    "user": EventType.USER_MESSAGE,
    "system": EventType.SYSTEM_EVENT,
    "developer": EventType.SYSTEM_EVENT,
    "tool": EventType.TOOL_RESPONSE,
    "function": EventType.TOOL_RESPONSE,
    API_ERROR_ROLE: EventType.ERROR_EVENT,
}
_TEXT_FIELDS = ("text", "thinking")
_ENCODED = re.compile(r"(?:data:[^,\s]{0,200},)?[A-Za-z0-9+/=_-]{200,}")
"""Images, files and encrypted text."""
MESSAGE_NUMBER_KEY = "message"
"""The key of an event's metadata with the number of its message, from 1."""
CALL_ID_KEY = "call_id"
"""The key of an event's metadata with the ID that pairs a tool call with its response."""
EXIT_CODE_KEY = "exit_code"
"""The key of a message, and of the event's metadata, with the exit code of a command."""
MAX_ERROR_LENGTH = 2_000


def messages_to_events(messages: Sequence[Message]) -> list[Event]:
    """The texts, tool calls and tool responses of these messages, in order."""
    tool_names: dict[str, str] = {}
    events: list[Event] = []
    for number, message in enumerate(messages, start=1):
        for event in _message_events(message, tool_names):
            event.metadata = {**event.metadata, MESSAGE_NUMBER_KEY: number}
            event.agent = _name(message.get(AGENT_KEY))
            events.append(event)
    return events


def _message_events(message: Message, tool_names: dict[str, str]) -> Iterator[Event]:
    kind = _ROLES[message["role"]]
    if kind is EventType.TOOL_RESPONSE:
        call_id = message.get("tool_call_id")
        name = tool_names.get(str(call_id)) or _name(message.get("name"))
        yield _tool_response(message, message.get("content"), name, call_id)
        return
    if kind is EventType.ERROR_EVENT:
        text = message_text(message.get("content"))
        yield Event(event_type=kind, content=text, error={"message": text[:MAX_ERROR_LENGTH]})
        return
    for block in _blocks(message.get("content")):
        event = _block_event(block, kind, tool_names)
        if event is not None:
            yield event
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        source = function if is_object(function) else call
        yield _tool_call(source.get("name"), call.get("id"), source.get("arguments"), tool_names)


def _block_event(block: Message, kind: EventType, tool_names: dict[str, str]) -> Event | None:
    """Tools that the provider executes have blocks such as `server_tool_use` and
    `web_fetch_tool_result`.
    """
    match str(block.get("type")):
        case name if name.endswith("tool_use"):
            return _tool_call(block.get("name"), block.get("id"), block.get("input"), tool_names)
        case name if name.endswith("tool_result"):
            call_id = block.get("tool_use_id")
            return _tool_response(
                block, block.get("content"), tool_names.get(str(call_id)), call_id
            )
        case _:
            text = _block_text(block)
            return Event(event_type=kind, content=text) if text.strip() else None


def _tool_call(name: Any, call_id: Any, arguments: Any, tool_names: dict[str, str]) -> Event:
    tool = _name(name)
    if tool is not None:
        tool_names[str(call_id)] = tool
    content = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    metadata = _call_id(call_id)
    return Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=content, metadata=metadata)


def _tool_response(envelope: Message, content: Any, tool: str | None, call_id: Any) -> Event:
    """A tool's result. Its envelope is the message or block around it, or a result of MCP with
    `isError` as its content. The text of a result says nothing about a failure.
    """
    result: Message = content if is_object(content) and "isError" in content else {}
    text = message_text(result.get("content") if result else content)
    failed = (
        envelope.get("is_error") is True
        or envelope.get("isError") is True
        or envelope.get("status") == "error"  # a ToolMessage of LangChain
        or result.get("isError") is True
    )
    code = envelope.get(EXIT_CODE_KEY)
    metadata = _call_id(call_id)
    if isinstance(code, int) and not isinstance(code, bool):
        metadata[EXIT_CODE_KEY] = code
    return Event(
        event_type=EventType.TOOL_RESPONSE,
        tool_name=tool,
        content=text,
        error={"message": text[:MAX_ERROR_LENGTH]} if failed else None,
        metadata=metadata,
    )


def _call_id(value: Any) -> dict[str, Any]:
    return {CALL_ID_KEY: value} if isinstance(value, str) and value else {}


def message_text(content: Any) -> str:
    """All text of a message's content."""
    return "\n".join(text for block in _blocks(content) if (text := _block_text(block)))


def _blocks(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    items = cast("list[Any]", content) if isinstance(content, list) else [content]
    return [
        {"type": "text", "text": item} if isinstance(item, str) else item
        for item in items
        if isinstance(item, str) or is_object(item)
    ]


def _block_text(block: Message) -> str:
    """The text of a block; of another one, such as a document or a resource, its JSON if it has
    words.
    """
    for key in _TEXT_FIELDS:
        if isinstance(text := block.get(key), str):
            return text
    readable = _without_encoded(block)
    return json.dumps(readable, ensure_ascii=False) if _has_words(readable) else ""


def _without_encoded(value: Any) -> Any:
    if is_object(value):
        return {key: _without_encoded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_encoded(item) for item in cast("list[Any]", value)]
    return "…" if isinstance(value, str) and _ENCODED.fullmatch(value) else value


def _has_words(value: Any) -> bool:
    if is_object(value):
        return any(map(_has_words, value.values()))
    if isinstance(value, list):
        return any(map(_has_words, cast("list[Any]", value)))
    return isinstance(value, str) and value != "…" and (" " in value or not value.isascii())


def _objects(value: Any) -> list[Message]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if is_object(item)]


def _name(value: Any) -> str | None:
    return value[:MAX_NAME_LENGTH] if isinstance(value, str) and value else None
