"""Detects failed calls and crashes. Their kinds come from the vocabulary."""

from __future__ import annotations

import ast
import re

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.arguments import as_items
from memory_api.trace_analysis.failures import error_message, most_informative_line
from memory_api.trace_analysis.findings import Crash, FailedCall
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.trace_analysis.vocabulary import (
    Vocabulary,
    language_of,
    load_vocabulary,
)
from memory_api.traces.schemas import ErrorCategory


def classify_error(message: str, vocabulary: Vocabulary | None = None) -> tuple[str, ErrorCategory]:
    """Kind and category of a failure message; ("failed", TOOL_ERROR) if no pattern matches. Without
    a vocabulary, that of the message's language.
    """
    return (vocabulary or load_vocabulary(language_of([message]))).classify_error(message)


MAX_FAILED_CALLS = 40
_MAX_SEARCHED_CHARACTERS = 400_000
_IDENTIFIER = re.compile(r"^(?=.*[\d#@])[\w#@./\-]{5,60}$")
"""Without a digit, `one_way` and `text/csv` are values that a tool defines."""
_DERIVED_VALUE = re.compile(
    r"-?\d{1,9}\.\d{1,9}|\d{4}[-/]\d{1,2}|\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:[T ].*)?"
)
"""Decimals and dates: agents calculate them, and write "May 3" as 2024-05-03."""
_LIBRARY_PATH = re.compile(
    r"site-packages|dist-packages|[/\\]lib[/\\]python|miniconda|[/\\]Lib[/\\]|<frozen"
)
_TRACEBACK_FRAME = re.compile(r'File "([^"\n]{1,300})", line (\d+)(?:, in ([\w<>.]{1,80}))?')
_PYDANTIC_TYPE_ERROR = re.compile(
    r"(?:Input )?should be an? (?:valid )?(?P<want>[\w ]{2,30}?)(?: \[|,"
    r"|$).{0,300}?input_type=(?P<got>\w+)",
    re.S,
)


def find_failed_calls(trace: ParsedTrace) -> tuple[FailedCall, ...]:
    """At most `MAX_FAILED_CALLS` failed calls in order. A wrong answer is not a failed call."""
    failed_calls = [call for call in trace.calls if call.failure_message]
    last_success = {
        call.tool: call.position
        for call in trace.calls
        if not call.failure_message and call.is_correct is not False
    }
    return tuple(
        _to_failed_call(trace, call, last_success.get(call.tool, -1) > call.position)
        for call in failed_calls[:MAX_FAILED_CALLS]
    )


def _to_failed_call(trace: ParsedTrace, call: ToolCall, tool_succeeded_later: bool) -> FailedCall:
    kind, category = trace.vocabulary.classify_error(call.failure_message)
    response_event_id = (
        None if call.response_position is None else trace.event_ids[call.response_position]
    )
    ungrounded, ungrounded_event_id = ungrounded_arguments(trace, call)
    return FailedCall(
        event_id=call.event_id,
        response_event_id=response_event_id,
        tool=call.tool,
        call=call.summary,
        kind=kind,
        message=excerpt(strip_alternatives(call.failure_message, trace.vocabulary)),
        category=category,
        failure_source=call.failure_source,
        alternatives=parse_alternatives(call.response, trace.vocabulary),
        ungrounded_arguments=ungrounded,
        ungrounded_event_id=ungrounded_event_id,
        tool_succeeded_later=tool_succeeded_later,
    )


def strip_alternatives(message: str, vocabulary: Vocabulary) -> str:
    """The message without its list of alternatives."""
    match = vocabulary.search("alternatives_intro", message)
    return message[: match.start()].rstrip(" .,;") if match and match.start() > 12 else message


def parse_alternatives(response: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Alternatives that a response lists ("Similar: ['A', 'B']"); at most ten."""
    match = vocabulary.search("alternatives_intro", response[:2_000])
    if not match:
        return ()
    listing = response[match.end() : match.end() + 3_000].lstrip()
    if listing[:1] == "[":
        return tuple(excerpt(item, 80) for item in _parse_list(listing) if item.strip())[:10]
    line = listing.split("\n", 1)[0]
    parts = [part.strip(" .'\"`") for part in re.split(r",|、| or |;", line)]
    return tuple(excerpt(part, 80) for part in parts if 0 < len(part) < 80)[:10]


def _parse_list(text: str) -> list[str]:
    end = text.rfind("]")
    while end > 0:
        try:
            value = ast.literal_eval(text[: end + 1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            end = text.rfind("]", 0, end) if len(text) - end < 400 else -1
            continue
        return [item for item in as_items(value) if isinstance(item, str)]
    return re.findall(r"'([^'\n]{2,80})'", text)


def ungrounded_arguments(trace: ParsedTrace, call: ToolCall) -> tuple[tuple[str, ...], str | None]:
    """At most three arguments (`name=value`) that look like identifiers and whose values the task
    does not contain, nor any event before a failed call of the same tool with the same argument;
    and the first such call. A value that several arguments have is listed once.
    """
    names: dict[str, str] = {}
    for name, value in call.arguments.items():
        for part in value.split(", "):
            if name and _IDENTIFIER.match(part) and not _DERIVED_VALUE.fullmatch(part):
                names.setdefault(part, name)
    ungrounded: list[tuple[int, str]] = []
    for part, name in list(names.items())[:8]:
        position = _first_mention(trace, part, call.position)
        if position == call.position or _is_failed_attempt(trace, position, call.tool, name, part):
            ungrounded.append((position, f"{name}={part}"))
    if not ungrounded:
        return (), None
    first = min(position for position, _ in ungrounded)
    return tuple(item for _, item in ungrounded[:3]), trace.event_ids[first]


def _first_mention(trace: ParsedTrace, value: str, before: int) -> int:
    """The first event up to `before` that contains a value; -1 for the task, or if the events are
    too long to search.
    """
    if value in trace.full_task:
        return -1
    remaining = _MAX_SEARCHED_CHARACTERS
    for position in range(before):
        text = trace.events[position].content
        if value in text[:remaining]:
            return position
        remaining -= len(text)
        if remaining <= 0:
            return -1
    return before


def _is_failed_attempt(trace: ParsedTrace, position: int, tool: str, name: str, value: str) -> bool:
    """Whether the event is a failed call of the tool with this argument."""
    return any(
        call.position == position
        and call.tool == tool
        and call.failure_message
        and value in call.arguments.get(name, "").split(", ")
        for call in trace.calls
    )


def find_crash(trace: ParsedTrace) -> Crash | None:
    """The last error event, with the call before it. None if it is the response to a call and a
    call or a message of the agent follows: then only this call failed.
    """
    if not trace.error_positions:
        return None
    position = trace.error_positions[-1]
    event = trace.events[position]
    is_of_call = any(call.response_position == position for call in trace.calls)
    last_position = max([call.position for call in trace.calls] + trace.reply_positions, default=-1)
    if is_of_call and last_position > position:
        return None
    error_text = error_message(event.error) if event.error else ""
    message = most_informative_line(event.content) if event.content.strip() else ""
    if error_text and (not message or message.startswith(("Traceback", "File "))):
        message = error_text
    raw = event.content + "\n" + str((event.error or {}).get("message", ""))
    sample = raw[:6_000] + raw[-4_000:] if len(raw) > 10_000 else raw
    kind, category = trace.vocabulary.classify_error(f"{message}\n{error_text}")
    preceding_call = next(
        (call for call in reversed(trace.calls) if call.position < position), None
    )
    type_error = _PYDANTIC_TYPE_ERROR.search(sample)
    return Crash(
        event_id=trace.event_ids[position],
        message=excerpt(_crash_summary(message, sample)),
        location=_crash_location(sample),
        kind=kind,
        category=ErrorCategory.UNKNOWN_ERROR if kind == "failed" and not message else category,
        preceding_call_event_id=preceding_call.event_id if preceding_call else None,
        preceding_call=preceding_call.summary if preceding_call else None,
        expected_type=type_error.group("want").strip() if type_error else None,
        actual_type=type_error.group("got") if type_error else None,
        is_of_call=is_of_call,
    )


def _crash_summary(message: str, sample: str) -> str:
    type_error = re.search(
        r"(\b\d{1,9} validation errors? for (\w{1,100})\s{1,20}(\w[\w.]{0,200})\s{1,20}"
        r"[^\n\[]{4,120}\[[^\]\n]{0,160})",
        sample,
    )
    return type_error.group(1) + "]" if type_error else message


def _crash_location(sample: str) -> str:
    """`file.py line n, in f` of the innermost frame outside libraries; '' without a traceback."""
    own_frames = [
        frame for frame in _TRACEBACK_FRAME.findall(sample) if not _LIBRARY_PATH.search(frame[0])
    ]
    if not own_frames:
        return ""
    path, line, function = own_frames[-1]
    name = re.split(r"[/\\]", path)[-1]
    return f"{name} line {line}" + (f", in {function}" if function else "")
