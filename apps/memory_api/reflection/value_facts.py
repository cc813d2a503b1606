"""Where the values of a run come from, and what its outputs and agents show, as sentences for a
model; part of `facts.py`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apps.memory_api.text.excerpts import excerpt
from apps.memory_api.trace_analysis.detectors.provenance import SearchableText, trace_arguments
from apps.memory_api.trace_analysis.findings import Findings, ValueOrigin
from apps.memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from apps.memory_api.traces.schemas import EventType

_MAX_VALUES = 8
_MAX_PER_KIND = 3
_MAX_CHECKED_CHARACTERS = 30_000
"""Of one response."""
_VALUE = re.compile(r"(?<![\w.])(?=[\w#-]*\d)[\w#-]+(?:[.,:/-]\d+(?!\w))*%?", re.ASCII)
_MIN_VALUE_LENGTH = 3


def where_answer_occurs(trace: ParsedTrace, answer: str, position: int) -> str:
    for call in trace.calls:
        if call.response_position is None or call.response_position >= position:
            continue
        if SearchableText.of(call.response[:_MAX_CHECKED_CHARACTERS]).contains(answer):
            event_id = trace.event_ids[call.response_position]
            return f"This text is in the response {event_id} of `{call.tool or 'unnamed'}`."
    return "This text is in no tool response of the run."


def where_values_occur(trace: ParsedTrace, text: str, position: int) -> Iterator[str]:
    """The numbers and identifiers of a message, and the first event that has each."""
    values = _values_of(text)
    responses = [c.response_position for c in trace.calls if c.response_position is not None]
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
        has_value = [n for n, earlier in enumerate(texts) if earlier.contains(value)]
        in_response = next((n for n in has_value if n in responses), None)
        if in_response is not None:
            found.append(f"{value} ({trace.event_ids[in_response]})")
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


def argument_origins(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    """Where the arguments of the calls came from that decide the outcome: those that differ from
    the right answer, else the last call that may have changed something.
    """
    wrong_ids = [item.event_id for item in findings.action_deviations if item.event_id]
    calls = [call for call in trace.calls if call.event_id in wrong_ids[:2]]
    if not calls:
        candidates = [c for c in trace.calls if _may_decide(c)]
        calls = ([c for c in candidates if c.writes] or candidates)[-1:]
    for call in calls:
        groups: dict[str, list[str]] = {}
        for origin in trace_arguments(trace, call):
            if origin.source == "instructions" and origin.value.isalpha():
                continue  # an ordinary word
            value = f"{origin.name}={origin.value}" if origin.name else origin.value
            groups.setdefault(_source(origin), []).append(value)
        if groups:
            name = f"`{call.tool}`" if call.tool else "the call"
            parts = [f"{source}: {', '.join(values)}" for source, values in groups.items()]
            yield f"First event with the values of {name} {call.event_id}: {'; '.join(parts)}."


def _may_decide(call: ToolCall) -> bool:
    return (
        bool(call.arguments)
        and "" not in call.arguments
        and not call.failure_message
        and call.writes is not False
    )


def _source(origin: ValueOrigin) -> str:
    if origin.source == "task":
        return "the task"
    if origin.source == "none" or origin.event_id is None:
        return "in no earlier event"
    speaker = {"user": "the user", "instructions": "the instructions", "agent": "the agent"}
    if origin.source in speaker:
        return f"{origin.event_id} ({speaker[origin.source]})"
    tool = f" of `{origin.tool}`" if origin.tool else ""
    return f"{origin.event_id} (response{tool})"


def structural_facts(findings: Findings) -> Iterator[str]:
    """Repetitions, outputs that nobody looked at, and statements without a source."""
    for item in findings.repeated_messages[:_MAX_PER_KIND]:
        ids = ", ".join(item.event_ids)
        yield f"{_agent(item.agent)} wrote the same opening {item.count} times ({ids})."
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
        yield (
            f"The message {item.event_id} states values that no earlier event contains: "
            f"{excerpt(', '.join(item.values), 160)}."
        )
    if item := findings.omitted_constraint:
        yield f"No later step mentions these values of the task: {', '.join(item.values)}."


def _agent(name: str) -> str:
    return name or "The agent"
