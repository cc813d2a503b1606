"""Converts logs of agents to traces: messages of model APIs, session files, benchmark trajectories.
Pure. A converter raises `InvalidRequest` for a record that is not in its format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from memory_api.core.errors import InvalidRequest
from memory_api.traces.importers.messages import EXIT_CODE_KEY, messages_to_events
from memory_api.traces.importers.session_lines import Message, parse_messages
from memory_api.traces.schemas import Event

Record = Mapping[str, Any]
Fields = dict[str, Any]
"""The fields of a `CreateTraceRequest`."""
_ARGUMENT_FIELDS = ("arguments", "action", "queries", "code", "input")
_RESULT_FIELDS = ("output", "outputs", "results", "error")
"""Fields of a call of a hosted tool in the Responses API."""
_CODEX_CONTEXT = re.compile(
    r"\s*+(?:# AGENTS\.md instructions for [^\n<]{0,4096}+\s*+)?<(?P<tag>INSTRUCTIONS"
    r"|user_instructions|environment_context|recommended_plugins|permissions instructions)>"
)
"""What Codex writes before the first message of the user, as a message of the user."""
_CODEX_EXIT_CODE = re.compile(
    r"(?:Chunk ID: \w{1,40}\n)?(?:Exit code: (?=-?\d{1,5}\nWall time: )"
    r"|Wall time: [^\n]{1,40}\nProcess exited with code )(?P<code>-?\d{1,5})\n"
)


def from_messages(record: Record) -> Fields:
    """`{"messages": […]}` of the OpenAI chat or the Anthropic messages API. The reply may be in
    `choices`, `response` or `content`.
    """
    messages = objects(record.get("messages"))
    if not messages:
        raise InvalidRequest("The record has no `messages`.", field="messages")
    if record.get("system"):
        messages.insert(0, {"role": "system", "content": record["system"]})
    reply = record.get("response")
    source = cast(Record, reply) if isinstance(reply, Mapping) else record
    for choice in objects(source.get("choices")):
        if isinstance(message := choice.get("message"), Mapping):
            messages.append({"role": "assistant", **message})
    if source.get("role") == "assistant" and source.get("content"):
        messages.append({"role": "assistant", "content": source["content"]})
    return _conversation(messages)


def from_responses(record: Record) -> Fields:
    """`input` and `output` items of the OpenAI Responses API."""
    nested = record.get("response")
    response = cast(Record, nested) if isinstance(nested, Mapping) else record
    given = record.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    if record.get("instructions"):
        items.insert(0, {"role": "system", "content": record["instructions"]})
    items += objects(response.get("output"))
    messages = _item_messages(items)
    if not messages:
        raise InvalidRequest("The record has no `input` and no `output`.", field="input")
    return _conversation(messages)


def from_claude_code(lines: Sequence[Any]) -> Fields:
    """The lines of a session file of Claude Code."""
    sessions = [line.get("sessionId") for line in objects(list(lines))]
    session_id = next((each for each in sessions if isinstance(each, str) and each), None)
    return _to_fields(parse_messages(lines)) | {"session_id": session_id}


def from_codex(lines: Sequence[Any]) -> Fields:
    """The lines of a session file (rollout) of Codex: `session_meta` and `response_item`."""
    items: list[Message] = []
    session_id: str | None = None
    for line in objects(list(lines)):
        payload = line.get("payload")
        if not isinstance(payload, Mapping):
            items += _without_context(_with_exit_code(line))  # older versions: only items
            continue
        values = cast(Record, payload)
        if line.get("type") == "session_meta" and isinstance(values.get("id"), str):
            session_id = values["id"]
        elif line.get("type") == "response_item":
            items += _without_context(_with_exit_code(values))
    return _conversation(_item_messages(items)) | {"session_id": session_id}


def _without_context(item: Message) -> list[Message]:
    """The item without the context that Codex adds, which becomes a message of the program."""
    if item.get("role") != "user":
        return [item]
    content = item.get("content")
    blocks = [{"text": content}] if isinstance(content, str) else objects(content)
    said: list[Message] = []
    context: list[str] = []
    for block in blocks:
        text = block.get("text")
        if not isinstance(text, str) or not (end := _context_end(text)):
            said.append(block)
            continue
        context.append(text[:end].strip())
        if rest := text[end:].strip():
            said.append({**block, "text": rest})
    if not context:
        return [item]
    program: Message = {"role": "developer", "content": "\n\n".join(context)}
    return [program, {**item, "content": said}] if said else [program]


def _context_end(text: str) -> int:
    """Where the context at the start of the text ends; 0 without one."""
    if text.startswith("# AGENTS.md instructions for ") and "<INSTRUCTIONS>" not in text:
        return len(text)
    position = 0
    while start := _CODEX_CONTEXT.match(text, position):
        end = text.find(f"</{start['tag']}>", start.end())
        if end < 0:
            break
        position = end + len(start["tag"]) + 3
    return position


def _with_exit_code(item: Message) -> Message:
    """The item, with the exit code that Codex writes around the output of a command: as JSON, or in
    lines before it.
    """
    output = item.get("output")
    if not isinstance(output, str) or not str(item.get("type")).endswith("call_output"):
        return item
    code: Any = None
    if match := _CODEX_EXIT_CODE.match(output):
        code = int(match["code"])
    elif output.startswith('{"output":'):
        try:
            code = _mapping(_mapping(json.loads(output)).get("metadata")).get(EXIT_CODE_KEY)
        except (ValueError, RecursionError):
            code = None
    return item if code is None else {**item, EXIT_CODE_KEY: code}


def from_tau_bench(record: Record) -> Fields:
    """A result of tau-bench: `traj`, `reward`, `task_id`, `info`."""
    reward = record.get("reward")
    outcome = None
    if isinstance(reward, (int, float)):
        outcome = "success" if reward >= 1 else "failure" if reward <= 0 else "partial"
    info = _mapping(record.get("info"))
    task = _mapping(info.get("task"))
    task_id = record.get("task_id")
    actions = task.get("actions")
    return _conversation(objects(record.get("traj"))) | {
        "outcome": outcome,
        "task_goal": task.get("instruction"),
        "task_key": None if task_id is None else f"tau-bench-{task_id}",
        "ground_truth": {"actions": actions} if actions else None,
        "metadata": {"trial": record.get("trial"), "reward": reward},
    }


def from_swe_agent(record: Record) -> Fields:
    """A trajectory of SWE-agent: steps with `thought`, `action` and `observation`."""
    events: list[Fields] = []
    for step in objects(record.get("trajectory")):
        thought = step.get("thought") or step.get("response")
        if isinstance(thought, str) and thought.strip():
            events.append({"event_type": "llm_response", "content": thought})
        action = step.get("action")
        if not isinstance(action, str) or not action.strip():
            continue
        tool = action.split()[0][:128]
        observation = step.get("observation")
        text = observation if isinstance(observation, str) else ""
        events.append({"event_type": "tool_call", "tool_name": tool, "content": action})
        events.append({"event_type": "tool_response", "tool_name": tool, "content": text})
    info = _mapping(record.get("info"))
    status = info.get("exit_status")
    outcome = None
    if isinstance(info.get("resolved"), bool):
        outcome = "success" if info["resolved"] else "failure"
    elif isinstance(status, str) and "error" in status:
        outcome = "error"
    task = record.get("instance_id") or record.get("environment")
    return {
        "events": events,
        "outcome": outcome,
        "task_key": task if isinstance(task, str) else None,
        "task_description": _first_user_text(objects(record.get("history"))),
        "generated_answer": info.get("submission"),
        "metadata": {"exit_status": status},
    }


def _conversation(messages: Sequence[Message]) -> Fields:
    return _to_fields(parse_messages(messages))


def _to_fields(messages: Sequence[Message]) -> Fields:
    events: Sequence[Event] = messages_to_events(messages)
    return {
        "events": [event.model_dump(mode="json", exclude_defaults=True) for event in events],
        "task_description": _first_user_text(messages),
    }


def _first_user_text(messages: Sequence[Message]) -> str | None:
    for event in messages_to_events([each for each in messages if each.get("role") == "user"]):
        if event.event_type == "user_message":
            return event.content
    return None


def _item_messages(items: Sequence[Message]) -> list[Message]:
    """Items of the Responses API as messages of the chat API."""
    found: list[Message] = []
    for item in items:
        match item.get("type"):
            case "function_call" | "custom_tool_call":
                arguments = item.get("arguments", item.get("input"))
                call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": arguments}
                found.append({"role": "assistant", "content": [], "tool_calls": [call]})
            case str(kind) if kind.endswith("call_output"):
                output = {"tool_call_id": item.get("call_id"), "content": item.get("output")}
                found.append({"role": "tool", **output, EXIT_CODE_KEY: item.get(EXIT_CODE_KEY)})
            case "local_shell_call":
                call = {"id": item.get("call_id"), "name": "shell", "arguments": item.get("action")}
                found.append({"role": "assistant", "content": [], "tool_calls": [call]})
            case str(kind) if kind.endswith("_call"):
                found += _hosted_call(item, kind.removesuffix("_call"))
            case "message" | None if isinstance(item.get("role"), str):
                found.append({"role": item["role"], "content": item.get("content")})
            case "reasoning" | None:
                pass  # encrypted, or no item
            case _:
                found.append({"role": "system", "content": [item]})
    return found


def _hosted_call(item: Message, kind: str) -> list[Message]:
    """A call of a tool that the provider executes, with its result."""
    call_id = item.get("call_id") or item.get("id")
    arguments = next((item[key] for key in _ARGUMENT_FIELDS if item.get(key) is not None), None)
    call = {"id": call_id, "name": item.get("name") or kind, "arguments": arguments}
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": item[key], "is_error": key == "error"}
        for key in _RESULT_FIELDS
        if item.get(key)
    ]
    return [{"role": "assistant", "content": [], "tool_calls": [call]}, *results]


def objects(value: Any) -> list[Message]:
    """The objects of a list; none of another value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast(Message, item) for item in items if isinstance(item, Mapping)]


def _mapping(value: Any) -> Record:
    return cast(Record, value) if isinstance(value, Mapping) else {}
