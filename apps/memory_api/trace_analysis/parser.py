"""Parse the events of a trace into tool calls, with their responses and failures, and messages."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from memory_api.text.excerpts import detect_language, excerpt, first_line, without_greeting
from memory_api.text.quotations import to_safe_name
from memory_api.trace_analysis.arguments import (
    Arguments,
    command_of,
    format_call,
    is_check,
    only_reads,
    parse_arguments,
)
from memory_api.trace_analysis.failures import (
    detect_failure,
    error_message,
    exit_code_failure,
    exit_code_from_metadata,
    is_result,
    most_informative_line,
)
from memory_api.traces.schemas import Event, EventType
from memory_api.traces.tools import ToolDefinition, recorded_tools

_SPOKEN_TYPES = (EventType.USER_MESSAGE, EventType.LLM_RESPONSE)
_SAMPLED_EVENTS = 30


@dataclass(slots=True)
class ToolCall:
    """One tool call with its response. `position` and `response_position` are indexes into the
    events of the trace.

    `failure_message` is empty unless the call failed. `exit_code` is what the trace states
    for the call; other codes than 0 are failures, unless they are results of the command.
    `writes`: whether the tool can change anything, by the `tools` of the trace, None if they do not
    say. A name proves nothing.
    """

    position: int
    event_id: str
    tool: str
    content: str
    arguments: Arguments
    response_position: int | None = None
    response: str = ""
    failure_message: str = ""
    exit_code: int | None = None
    writes: bool | None = None
    _summary: str = ""

    @property
    def has_response(self) -> bool:
        return self.response_position is not None

    @property
    def summary(self) -> str:
        if not self._summary:
            self._summary = format_call(self.tool, self.content, self.arguments)
        return self._summary

    @property
    def command(self) -> str:
        """The command or code that the call runs, '' if its arguments name none."""
        return command_of(self.content, self.arguments)

    @property
    def is_check(self) -> bool:
        return is_check(self.content)

    @property
    def only_reads(self) -> bool:
        """Whether the arguments, alone or after the tool's name, are commands that only read."""
        return only_reads(self.command) or only_reads(f"{self.tool} {self.command}")

    @property
    def may_modify(self) -> bool:
        """False if a call is known to only read: the trace states it of the tool, or the call is a
        shell command that consists of commands that only read.
        """
        return self.writes or (self.writes is None and not self.only_reads)

    @property
    def key(self) -> tuple[str, str]:
        """Calls with equal keys are identical."""
        return self.tool, "\x1f".join(
            f"{name}={value.strip()}" for name, value in sorted(self.arguments.items())
        )


@dataclass(slots=True)
class ParsedTrace:
    """A trace as tool calls and messages. The `…_positions` are indexes into `events`, ascending.

    `tools`: those that the agent could call; without a list of them, those that it called.
    """

    events: Sequence[Event]
    event_ids: list[str]
    calls: list[ToolCall] = field(default_factory=list)
    user_positions: list[int] = field(default_factory=list)
    reply_positions: list[int] = field(default_factory=list)
    error_positions: list[int] = field(default_factory=list)
    task: str = ""
    full_task: str = ""
    tools: Sequence[ToolDefinition] = ()

    def content_at(self, position: int) -> str:
        return self.events[position].content


def parse_trace(
    events: Sequence[Event],
    task: str | None = None,
    goal: str | None = None,
    tools: Sequence[ToolDefinition] = (),
) -> ParsedTrace:
    """Parses a trace in one pass. Pairs calls with responses by call ID, else in order. `tools` are
    those that the agent could call.
    """
    writes = {tool.name: tool.writes for tool in tools}
    trace = ParsedTrace(
        events, [event.event_id or f"e{index:04d}" for index, event in enumerate(events)]
    )
    calls_by_id: dict[str, ToolCall] = {}
    open_calls: deque[ToolCall] = deque()
    for position, event in enumerate(events):
        kind = event.event_type
        if kind is EventType.TOOL_CALL:
            call = _parse_call(trace.event_ids[position], position, event)
            call.writes = writes.get(call.tool)
            trace.calls.append(call)
            open_calls.append(call)
            if call_id := _call_id(event):
                calls_by_id[call_id] = call
        elif kind is EventType.TOOL_RESPONSE:
            _attach_response(event, position, calls_by_id, open_calls)
        elif kind is EventType.USER_MESSAGE:
            trace.user_positions.append(position)
        elif kind is EventType.ERROR_EVENT:
            trace.error_positions.append(position)
            _attach_error(event, position, trace.calls, calls_by_id)
        elif kind is EventType.LLM_RESPONSE:
            trace.reply_positions.append(position)
            open_calls.clear()
        elif kind is EventType.SYSTEM_EVENT:
            trace.error_positions += [position] if event.error else []
    trace.task = describe_task(events, task, goal)
    trace.tools = tools or recorded_tools(call.tool for call in trace.calls)
    trace.full_task = task or trace.task
    for call in trace.calls:
        _add_exit_code(trace, call)
    return trace


def _parse_call(event_id: str, position: int, event: Event) -> ToolCall:
    content, tool = event.content, event.tool_name or ""
    if not tool:
        written = re.match(r"\s*([\w.\-]{1,40})[\[(]", content) if len(content) < 4_000 else None
        tool = _tool_from_metadata(event.metadata) or (
            written.group(1) if written and event.tool_name is None else ""
        )
    tool = to_safe_name(tool)
    call = ToolCall(position, event_id, tool, content, parse_arguments(content, tool))
    if event.error:
        call.failure_message = error_message(event.error) or excerpt(content)
    return call


def _tool_from_metadata(metadata: dict[str, Any]) -> str:
    name = metadata.get("tool") or metadata.get("tool_name")
    return name[:60] if isinstance(name, str) else ""


def _call_id(event: Event) -> str | None:
    value = event.metadata.get("call_id") or event.metadata.get("tool_call_id")
    return value if isinstance(value, str) else None


def _attach_response(
    event: Event,
    position: int,
    calls_by_id: dict[str, ToolCall],
    open_calls: deque[ToolCall],
) -> None:
    call_id = _call_id(event)
    call = calls_by_id.pop(call_id, None) if call_id else None
    if call is None:
        while open_calls and open_calls[0].response_position is not None:
            open_calls.popleft()
        call = open_calls.popleft() if open_calls else None
    if call is None or call.response_position is not None:
        return
    call.response_position, call.response = position, event.content
    call.failure_message = call.failure_message or detect_failure(event)


def _attach_error(
    event: Event, position: int, calls: list[ToolCall], calls_by_id: dict[str, ToolCall]
) -> None:
    """An error event with the ID of a call, or directly after a call, is its failed response."""
    call = calls_by_id.get(_call_id(event) or "")
    if call is None and calls and calls[-1].position == position - 1:
        call = calls[-1]
    if call and call.response_position is None:
        call.response_position, call.response = position, event.content
        message = most_informative_line(event.content) if event.content.strip() else ""
        call.failure_message = message or error_message(event.error or {}) or "error"


def _add_exit_code(trace: ParsedTrace, call: ToolCall) -> None:
    """Sets the exit code of a call. Another code than 0 is a failure, unless it is a result of the
    command.
    """
    call.exit_code = _find_exit_code(trace, call)
    if call.exit_code in (0, None) or call.failure_message:
        return
    if not is_result(call.tool, call.command, call.exit_code):
        call.failure_message = exit_code_failure(call.exit_code, call.response)


def _find_exit_code(trace: ParsedTrace, call: ToolCall) -> int | None:
    for position in (call.response_position, call.position):
        if position is None:
            continue
        code = exit_code_from_metadata(trace.events[position].metadata)
        if code is not None:
            return code
    return None


def language_of(events: Sequence[Event], task: str | None) -> str:
    """The language in which Hansei writes about a trace: `ja` by its script, else `en`."""
    spoken = [e.content for e in events[:_SAMPLED_EVENTS] if e.event_type in _SPOKEN_TYPES]
    return detect_language(
        [*filter(None, [task]), *(spoken or [event.content for event in events[:10]])]
    )


def describe_task(events: Sequence[Event], task: str | None, goal: str | None) -> str:
    """The first line of the task, of a user message or of the goal, without a greeting."""
    spoken = (e.content for e in events if e.event_type is EventType.USER_MESSAGE)
    user_messages = list(islice(spoken, 3))
    for text in (task, *user_messages, goal):
        body = without_greeting(text) if text else ""
        if len(body) >= 10:
            return first_line(body, 180)
    return first_line(task or (user_messages[0] if user_messages else "") or goal or "", 180)
