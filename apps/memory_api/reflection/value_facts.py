"""Where the values of a run come from, and what its outputs and agents show, as sentences for a
model; part of `facts.py`. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from memory_api.reflection.rules.english_structure import EnglishStructure
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.arguments import is_calculation, parse_mapping
from memory_api.trace_analysis.detectors.provenance import (
    SearchableText,
    contains_value,
    fold_value,
    trace_arguments,
)
from memory_api.trace_analysis.exit_codes import COMMAND_ARGUMENTS
from memory_api.trace_analysis.findings import Findings, ValueOrigin
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.traces.schemas import EventType

_MAX_VALUES = 8
_MAX_PER_KIND = 3
_MAX_UNREPORTED_VALUES = 4
"""A response with more new values is a listing."""
_MAX_CHECKED_CHARACTERS = 30_000
"""Of one response."""
_VALUE = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:[,\u00a0\u202f]\d{3})+(?!\d)(?:\.\d+)?(?:[A-Za-z]{1,8}|%)?"  # 1,500k
    r"|(?=[\w#-]*\d)[\w#-]+(?:[.,:/-]\d+(?!\w))*%?)",
    re.ASCII,
)
_MIN_VALUE_LENGTH = 3


def is_code(trace: ParsedTrace, call: ToolCall) -> bool:
    """Whether the call is a code block of a message. Its `tool` is the language."""
    return trace.events[call.position].event_type is not EventType.TOOL_CALL


def code_name(language: str) -> str:
    return "code" if language == "code" else f"{language} code"


def call_name(trace: ParsedTrace, call: ToolCall) -> str:
    return code_name(call.tool) if is_code(trace, call) else f"`{call.tool or 'unnamed'}`"


NOTATION = "types, case, spaces or order"
"""What `Arguments` leave out."""


def notation_of(call: ToolCall) -> str:
    """The arguments as they were written: `"14"` and `14` differ, the order of names does not."""
    mapping = parse_mapping(call.content)
    if mapping is None:
        return call.content.strip()
    return json.dumps(mapping, sort_keys=True, default=str)


def where_answer_occurs(trace: ParsedTrace, answer: str, position: int) -> str:
    for call in trace.calls:
        if call.response_position is None or call.response_position >= position:
            continue
        if SearchableText.of(call.response[:_MAX_CHECKED_CHARACTERS]).contains(answer):
            event_id = trace.event_ids[call.response_position]
            return f"This text is in the response {event_id} of {call_name(trace, call)}."
    return "This text is in no tool response of the run."


def where_values_occur(trace: ParsedTrace, text: str, position: int) -> Iterator[str]:
    """The numbers and identifiers of a message, and the first events that have each."""
    values = _values_of(text)
    responses = {call.response_position for call in trace.calls if call.has_response}
    if not values:
        return
    event_id = trace.event_ids[position]
    texts = [
        SearchableText.of(trace.content_at(n)[:_MAX_CHECKED_CHARACTERS]) for n in range(position)
    ]
    task = SearchableText.of(trace.full_task)
    found: list[str] = []
    missing: list[str] = []
    for value in values[:_MAX_VALUES]:
        has_value = [n for n, earlier in enumerate(texts) if _contains(earlier, value)]
        if ids := [trace.event_ids[n] for n in has_value if n in responses]:
            more = " and more" if len(ids) > _MAX_PER_KIND else ""
            found.append(f"{value} ({', '.join(ids[:_MAX_PER_KIND])}{more})")
            continue
        if not has_value and task.contains(value):
            missing.append(f"{value} (in the task)")
            continue
        first = has_value[0] if has_value else None
        missing.append(f"{value} ({_first_mention(trace, first)})")
    if missing and not responses:
        yield f"Values of {event_id}: {', '.join(missing)}."
        return
    if found:
        yield f"Values of {event_id} that a tool response contains: {', '.join(found)}."
    if missing:
        yield f"Values of {event_id} that no tool response contains: {', '.join(missing)}."


def unreported_values(trace: ParsedTrace) -> Iterator[str]:
    """The few new values in the response to the last call that may have changed something, if no
    later message contains them. An example is an amount that differs from the one in the agent's
    message.
    """
    call = next(iter(_deciding_calls(trace)), None)
    position = call.response_position if call and call.has_response else None
    replies = [n for n in trace.reply_positions if position is not None and n > position]
    if call is None or position is None or not replies:
        return
    others = [*range(position), *replies]
    texts = [SearchableText.of(trace.content_at(n)[:_MAX_CHECKED_CHARACTERS]) for n in others] + [
        SearchableText.of(trace.full_task)
    ]
    values = [
        value
        for value in _values_of(call.response)
        if not any(_contains(text, value) for text in texts)
    ]
    if 0 < len(values) <= _MAX_UNREPORTED_VALUES:
        yield (
            f"The response {trace.event_ids[position]} of {call_name(trace, call)} has values that "
            f"no earlier event and no later message contains: {', '.join(values)}."
        )


def _first_mention(trace: ParsedTrace, position: int | None) -> str:
    if position is None:
        return "in no earlier event"
    event = trace.events[position]
    speaker = event.agent or _SPEAKERS.get(event.event_type, event.event_type.value)
    return f"first in {trace.event_ids[position]}, {speaker}"


_SPEAKERS = {
    EventType.USER_MESSAGE: "the user",
    EventType.LLM_RESPONSE: "the agent",
    EventType.TOOL_CALL: "the agent",
    EventType.SYSTEM_EVENT: "the instructions",
}


def _values_of(text: str) -> list[str]:
    """Numbers and identifiers. Times are left out, because their notations differ."""
    values = (match.group().strip("#-") for match in _VALUE.finditer(text[:4_000]))
    return list(
        dict.fromkeys(
            value for value in values if len(value) >= _MIN_VALUE_LENGTH and ":" not in value
        )
    )


def _contains(text: SearchableText, value: str) -> bool:
    """Whether a value occurs. 0.0 must occur as it stands: otherwise each 0 would be one."""
    if len(fold_value(value)) < 2:
        return contains_value(text.text, value)
    return text.contains(value)


def argument_origins(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    """Where the arguments of the calls came from that decide the outcome: those that differ from
    the right answer, else the last call that may have changed something.
    """
    wrong_ids = [item.event_id for item in findings.action_deviations if item.event_id]
    calls = [call for call in trace.calls if call.event_id in wrong_ids[:2]]
    calls = [c for c in calls or _deciding_calls(trace) if not is_calculation(c.arguments)]
    outputs = {c.response_position for c in trace.calls if is_code(trace, c)}
    output_ids = {trace.event_ids[n] for n in outputs if n is not None}
    for call in calls:
        groups: dict[str, list[str]] = {}
        for origin in trace_arguments(trace, call):
            if origin.source == "instructions" and origin.value.isalpha():
                continue  # an ordinary word
            if origin.name in COMMAND_ARGUMENTS:
                continue  # the agent writes commands itself
            value = f"{origin.name}={origin.value}" if origin.name else origin.value
            groups.setdefault(_source(origin, output_ids), []).append(value)
        if groups:
            name = f"`{call.tool}`" if call.tool else "the call"
            parts = [f"{source}: {', '.join(values)}" for source, values in groups.items()]
            yield f"First event with the values of {name} {call.event_id}: {'; '.join(parts)}."


def _deciding_calls(trace: ParsedTrace) -> list[ToolCall]:
    """The last call that may have changed something, as a list; empty if none is known."""
    candidates = [c for c in trace.calls if _may_decide(c)]
    writes = [c for c in candidates if c.writes]
    # The last call of a team is often the one that looks at a result.
    return (writes or ([] if trace.steps else candidates))[-1:]


def _may_decide(call: ToolCall) -> bool:
    return (
        bool(call.arguments)
        and "" not in call.arguments
        and not call.failure_message
        and call.may_modify
    )


def _source(origin: ValueOrigin, output_ids: Collection[str]) -> str:
    if origin.source == "task":
        return "the task"
    if origin.source == "none" or origin.event_id is None:
        return "in no earlier event"
    speaker = {"user": "the user", "instructions": "the instructions", "agent": "the agent"}
    if origin.source in speaker:
        return f"{origin.event_id} ({speaker[origin.source]})"
    if origin.event_id in output_ids:
        return f"{origin.event_id} (output of code)"
    tool = f" of `{origin.tool}`" if origin.tool else ""
    return f"{origin.event_id} (response{tool})"


def structural_facts(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    """Repetitions, outputs that nobody looked at, and statements without a source."""
    for item in findings.repeated_messages[:_MAX_PER_KIND]:
        ids = ", ".join(item.event_ids) + (" and more" if item.count > len(item.event_ids) else "")
        written = "made calls with" if _is_call(trace, item.event_id) else "wrote"
        yield (
            f"{_agent(item.agent)} {written} the same opening, apart from digits and punctuation, "
            f"{item.count} times ({ids})."
        )
    for item in findings.unresolved_outputs[:_MAX_PER_KIND]:
        code = f" with exit code {item.exit_code}" if item.exit_code is not None else ""
        yield (
            f"The output {item.output_event_id} of {item.event_id}{code} is an error or empty, and "
            "no successful output follows."
        )
    for item in findings.repeated_results[:_MAX_PER_KIND]:
        yield f"{item.count} different calls returned the same text ({', '.join(item.event_ids)})."
    for item in findings.truncated_outputs[:_MAX_PER_KIND]:
        yield f"The output {item.output_event_id} says that it is truncated: “{item.quote}”"
    for item in findings.unused_results[:_MAX_PER_KIND]:
        yield (
            f"No later event contains a number or name of the response {item.response_event_id} to "
            f"{item.event_id}."
        )
    for item in findings.unsupported_statements[:_MAX_PER_KIND]:
        text = trace.content_at(trace.event_ids.index(item.event_id))
        if values := [value for value in item.values if not _is_fragment(value, text)]:
            more = item.count - len(item.values) if len(values) == len(item.values) else 0
            shown = excerpt(", ".join(values), 160) + (f" and {more} more" if more > 0 else "")
            kind = "call" if _is_call(trace, item.event_id) else "message"
            yield f"The {kind} {item.event_id} has values that no earlier event contains: {shown}."
    yield from (EnglishStructure().divergence(item) for item in findings.divergences)
    if item := findings.omitted_constraint:
        values = ", ".join(item.values)
        yield f"No later step contains these values of the task word for word: {values}."


def _is_call(trace: ParsedTrace, event_id: str) -> bool:
    event = trace.events[trace.event_ids.index(event_id)]
    return event.event_type is EventType.TOOL_CALL


def _is_fragment(value: str, text: str) -> bool:
    """Whether a number occurs only as a part of a time or of a date such as 2024-05-01."""
    if not value.isdigit():
        return False
    number = rf"(?<!\d)0*{value}(?!\d)"
    part = re.search(rf"\d[:/]{number}|{number}[:/]\d|-{number}-\d|\d-\d+-{number}", text)
    return bool(part) and not re.search(rf"(?<![\d:/-])0*{value}(?![:/-]?\d)", text)


def _agent(name: str) -> str:
    return name or "The agent"
