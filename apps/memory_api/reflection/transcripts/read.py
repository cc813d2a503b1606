"""A transcript is a trace written in another way: messages of roles, as the chat APIs and Claude
Code's session files have them. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast

from apps.memory_api.core.schemas import MAX_NAME
from apps.memory_api.traces.schemas import Event, EventType

Message = Mapping[str, Any]
_ROLES = {
    "assistant": EventType.LLM_RESPONSE,
    "user": EventType.USER_MESSAGE,
    "system": EventType.SYSTEM_EVENT,
    "developer": EventType.SYSTEM_EVENT,
    "tool": EventType.TOOL_RESPONSE,
    "function": EventType.TOOL_RESPONSE,
}
_SAID = ("text", "thinking")
NUMBER = "message"
"""In the metadata of an event: the message it comes from, from 1."""


def messages_of(lines: Iterable[Any]) -> list[Message]:
    """The messages among these: as they are, or inside a line of a session file. What has no role
    (summaries, bookkeeping) and what the program said to itself (`isMeta`) is left out.
    """
    found: list[Message] = []
    for line in lines:
        if not _is_object(line) or line.get("isMeta"):
            continue
        inner = line.get("message")
        message = inner if _is_object(inner) else line
        if message.get("role") in _ROLES:
            found.append(message)
    return found


def events_of(messages: Sequence[Message]) -> list[Event]:
    """What was said, called and answered, in order."""
    tools: dict[str, str] = {}
    events: list[Event] = []
    for number, message in enumerate(messages, start=1):
        for event in _events(message, tools):
            event.metadata = {**event.metadata, NUMBER: number}
            events.append(event)
    return events


def _events(message: Message, tools: dict[str, str]) -> Iterator[Event]:
    kind = _ROLES[message["role"]]
    if kind is EventType.TOOL_RESPONSE:
        name = tools.get(str(message.get("tool_call_id"))) or _name(message.get("name"))
        yield Event(event_type=kind, tool_name=name, content=text_of(message.get("content")))
        return
    for block in _blocks(message.get("content")):
        event = _block(block, kind, tools)
        if event is not None:
            yield event
    for call in _objects(message.get("tool_calls")):
        function = call.get("function")
        told = function if _is_object(function) else call
        yield _call(told.get("name"), call.get("id"), told.get("arguments"), tools)


def _block(block: Message, kind: EventType, tools: dict[str, str]) -> Event | None:
    match block.get("type"):
        case "tool_use":
            return _call(block.get("name"), block.get("id"), block.get("input"), tools)
        case "tool_result":
            text = text_of(block.get("content"))
            failed = bool(block.get("is_error"))
            return Event(
                event_type=EventType.TOOL_RESPONSE,
                tool_name=tools.get(str(block.get("tool_use_id"))),
                content=text,
                error={"message": text[:2000]} if failed else None,
            )
        case _:
            text = _said(block)
            return Event(event_type=kind, content=text) if text.strip() else None


def _call(name: Any, call_id: Any, arguments: Any, tools: dict[str, str]) -> Event:
    tool = _name(name)
    if tool is not None:
        tools[str(call_id)] = tool
    content = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Event(event_type=EventType.TOOL_CALL, tool_name=tool, content=content)


def text_of(content: Any) -> str:
    """All text of a message's content."""
    return "\n".join(text for block in _blocks(content) if (text := _said(block)))


def _blocks(content: Any) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    items = cast("list[Any]", content) if isinstance(content, list) else [content]
    return [
        {"type": "text", "text": item} if isinstance(item, str) else item
        for item in items
        if isinstance(item, str) or _is_object(item)
    ]


def _said(block: Message) -> str:
    return next((text for key in _SAID if isinstance(text := block.get(key), str)), "")


def _objects(value: Any) -> list[Message]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if _is_object(item)]


def _is_object(value: Any) -> TypeGuard[Message]:
    return isinstance(value, Mapping)


def _name(value: Any) -> str | None:
    return value[:MAX_NAME] if isinstance(value, str) and value else None
