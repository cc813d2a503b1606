"""What the code knows about a run, as short sentences with event IDs for a model. Pure.

Every sentence is a count, a comparison or a quotation that the events prove. It names no cause and
gives no advice. The sentences quote the trace, so a prompt has to fence them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory_api.reflection.right_answer_facts import describe_changes, right_answer_facts
from memory_api.reflection.value_facts import (
    NOTATION,
    argument_origins,
    call_name,
    code_name,
    is_code,
    notation_of,
    structural_facts,
    unreported_values,
    where_answer_occurs,
    where_values_occur,
)
from memory_api.text.differences import excerpt_differences
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.context import ReflectionContext
from memory_api.trace_analysis.detectors.provenance import SearchableText
from memory_api.trace_analysis.failures import is_exit_code
from memory_api.trace_analysis.findings import (
    FailedCall,
    FinalAnswer,
    Findings,
    Refusal,
    RepairedCall,
)
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, error_message
from memory_api.trace_analysis.team import base_name
from memory_api.traces.schemas import EventType

MAX_FACTS = 40
_MAX_PER_KIND = 6
_MAX_TOOLS = 16
_MAX_ANSWER_LENGTH = 200
"""Characters of a final answer that is searched for as a whole."""
_SHOWN_END_LENGTH = 160
"""Characters of the start and of the end of a message."""
_MIN_SLOW_SECONDS = 5.0
_MIN_TIME_SHARE = 0.5


@dataclass(frozen=True)
class StatedError:
    """The error of the run: as the client reported it, or of the last event that has one."""

    category: str
    message: str
    context: dict[str, object]
    event_id: str | None = None


def stated_error(context: ReflectionContext, trace: ParsedTrace) -> StatedError | None:
    """The error field of the trace; without it, that of the last event with an error, unless a
    later call succeeded: then the run overcame it, and it is only one of the failed calls.
    """
    if context.error is not None:
        error = context.error
        return StatedError(error.error_category.value, error.error_message, dict(error.context))
    succeeded = [
        call.response_position
        for call in trace.calls
        if call.response_position is not None
        and call.failure_source == "tool"
        and not call.failure_message
        and call.is_correct is None
    ]
    for position in range(len(context.events) - 1, max(succeeded, default=-1), -1):
        event = context.events[position]
        if event.error or event.event_type is EventType.ERROR_EVENT:
            message = error_message(event.error) if event.error else ""
            content = excerpt(event.content, 300)
            shown = message if message and message not in content else content or message
            return StatedError("", shown, dict(event.error or {}), trace.event_ids[position])
    return None


def collect_facts(
    context: ReflectionContext, trace: ParsedTrace, findings: Findings, ground_truth: Any = None
) -> list[str]:
    """The sentences, the most decisive kinds first; at most `MAX_FACTS`."""
    facts = [
        *_extent(trace),
        *_final_message(trace, findings),
        *right_answer_facts(trace, findings, ground_truth),
        *_failed_tests(findings),
        *_crash(trace, findings),
        *_failed_calls(trace, findings),
        *_repaired_calls(trace, findings),
        *_repeated_calls(trace, findings),
        *_exit_codes(trace),
        *(_refusal(trace, item) for item in findings.refusals),
        *structural_facts(trace, findings),
        *unreported_values(trace),
        *_consent(findings),
        *argument_origins(trace, findings),
        *_slowest(findings),
    ]
    return list(dict.fromkeys(facts))[:MAX_FACTS]


def _extent(trace: ParsedTrace) -> Iterator[str]:
    if not trace.events:
        return
    failed = sum(1 for call in trace.calls if call.failure_message)
    calls = _plural(len(trace.calls), "tool call")
    failures = f", {failed} of them failed" if failed else ""
    messages = (
        f"{_plural(len(trace.user_positions), 'user message')} and "
        f"{_plural(len(trace.reply_positions), 'agent message')}"
    )
    yield f"The run has {_plural(len(trace.events), 'event')}: {calls}{failures}, {messages}."
    if trace.calls and not any(call.has_response for call in trace.calls):
        yield "No response of a tool call is recorded."
    named = [call for call in trace.calls if call.tool and not is_code(trace, call)]
    used = Counter(f"`{call.tool}`" for call in named)
    if used:
        yield f"Calls by tool: {_counts(used)}."
    blocks = Counter(call.tool for call in trace.calls if is_code(trace, call))
    if blocks:
        yield f"Code blocks of agent messages that count as tool calls: {_counts(blocks)}."
    kinds = (EventType.LLM_RESPONSE, EventType.TOOL_CALL)
    agents = Counter(e.agent for e in trace.events if e.agent and e.event_type in kinds)
    if len(agents) > 1:
        yield f"Messages and calls by agent: {_counts(agents)}."
        callers = {base_name(trace.events[call.position].agent) for call in trace.calls}
        without = [name for name in agents if base_name(name) not in callers]
        if without and callers and "" not in callers:
            yield f"Agents that made no call: {', '.join(without[:_MAX_TOOLS])}."


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counter.most_common(_MAX_TOOLS))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _final_message(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    """How the run ended, and whether what it said last is in any tool response."""
    if not trace.events:
        return
    answer = findings.final_answer
    given = _answer_text(trace, answer.event_id) if answer and answer.event_id else ""
    if answer is not None and given:
        yield f"The final answer is {_quote(excerpt(given))} ({answer.event_id})."
        position = _position(trace, answer.event_id or "")
        is_of_task = SearchableText.of(trace.full_task).contains(given)
        if position is not None and len(given) <= _MAX_ANSWER_LENGTH and not is_of_task:
            yield where_answer_occurs(trace, given, position)
        if answer.is_correct is not None:
            verdict = "correct" if answer.is_correct else "wrong"
            yield f"The environment called this answer {verdict}."
        return
    last = trace.reply_positions[-1] if trace.reply_positions else None
    last_call = trace.calls[-1] if trace.calls else None
    if last is not None and (last_call is None or last > last_call.position):
        event_id, text = trace.event_ids[last], trace.content_at(last)
        yield f"The agent's last message is {event_id}: {_quote(_ends_of(text))}"
        stated = _stated_answer(trace, answer)
        if stated is not None and stated != last:
            event_id, text = trace.event_ids[stated], trace.content_at(stated)
            shown = _quote(_ends_of(text))
            yield f"The last message that introduces an answer is {event_id}: {shown}"
        yield from where_values_occur(trace, text, last if stated is None else stated)
        return
    if last_call is not None:
        end = trace.events[-1]
        yield (
            f"No message of the agent follows its last call, {last_call.event_id} "
            f"({call_name(trace, last_call)}). The last event is {trace.event_ids[-1]} "
            f"({end.event_type.value}): {_quote(excerpt(end.content, 160))}"
        )


def _stated_answer(trace: ParsedTrace, answer: FinalAnswer | None) -> int | None:
    """The message of a team with a phrase such as "final answer:" that has the final answer."""
    position = _position(trace, answer.event_id or "") if answer and trace.steps else None
    if position is None or not trace.vocabulary.search("answer_intro", trace.content_at(position)):
        return None
    return position


def _ends_of(text: str) -> str:
    """The text, or its start and its end, where a final answer often is."""
    line = " ".join(text.split())
    if len(line) <= 2 * _SHOWN_END_LENGTH:
        return line
    return f"{excerpt(line, _SHOWN_END_LENGTH)} {line[-_SHOWN_END_LENGTH:].partition(' ')[2]}"


def _answer_text(trace: ParsedTrace, event_id: str) -> str:
    call = next((call for call in trace.calls if call.event_id == event_id), None)
    return call.arguments.get("", "") if call else ""


def _position(trace: ParsedTrace, event_id: str) -> int | None:
    return trace.event_ids.index(event_id) if event_id in trace.event_ids else None


def _failed_tests(findings: Findings) -> Iterator[str]:
    for item in findings.failed_assertions[:_MAX_PER_KIND]:
        values = (
            f": expected {excerpt(item.expected, 120)}, got {excerpt(item.actual, 120)}"
            if item.expected is not None and item.actual is not None
            else f": {_quote(excerpt(item.message, 200))}"
            if item.message
            else ""
        )
        yield f"The test {item.test} failed{values}."


def _crash(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    crash = findings.crash
    position = _position(trace, crash.event_id) if crash else None
    if crash is None or position is None:
        return
    location = f" at {crash.location}" if crash.location else ""
    if later := len(trace.events) - position - 1:
        events = "1 event follows" if later == 1 else f"{later} events follow"
        yield f"The last error event is {crash.event_id}{location}; {events}."
        return
    yield f"The run ended with an error ({crash.event_id}){location}: {_quote(crash.message)}"
    if crash.preceding_call_event_id:
        yield f"The last call before the error is {crash.preceding_call_event_id}."


def _failed_calls(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    code_ids = {call.event_id for call in trace.calls if is_code(trace, call)}
    groups: dict[tuple[str, str], list[FailedCall]] = {}
    for call in findings.failed_calls:
        groups.setdefault((call.tool, call.message), []).append(call)
    for (tool, message), calls in list(groups.items())[:_MAX_PER_KIND]:
        ids = ", ".join(call.event_id for call in calls[:_MAX_PER_KIND])
        ids += f" and {len(calls) - _MAX_PER_KIND} more" if len(calls) > _MAX_PER_KIND else ""
        name = f" of `{tool}`" if tool else ""
        subject = (
            f"The call {ids}{name}" if len(calls) == 1 else f"{len(calls)} calls{name} ({ids})"
        )
        if calls[0].event_id in code_ids:
            subject = f"The {code_name(tool)} in {ids}"
        source = (
            ", as the agent's next message says" if calls[0].failure_source == "message" else ""
        )
        why = f" with {message}." if is_exit_code(message) else f"{source}: {_quote(message)}"
        yield f"{subject} failed{why}"


def _repaired_calls(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    calls = {call.event_id: call for call in trace.calls}
    for item in findings.repaired_calls:
        before, after = calls[item.failed_event_id], calls[item.event_id]
        if not is_code(trace, after):
            yield _repaired(item, before, after)
            continue
        code = code_name(item.tool)
        later = f"the next {code} that returned no error is in {item.event_id}. It differs."
        if before.content == after.content:
            later = f"the same {code} in {item.event_id} returned no error."
        yield f"The {code} in {item.failed_event_id} failed; {later}"


def _repaired(item: RepairedCall, before: ToolCall, after: ToolCall) -> str:
    failed = f"The call {item.failed_event_id} of `{item.tool}` failed"
    if notation_of(before) == notation_of(after):
        return f"{failed}; the same call returned no error in {item.event_id}."
    changes = describe_changes(item.argument_changes, "before", "then")
    if changes:
        differing = f" Its arguments differ: {changes}."
    else:
        old, new = excerpt_differences(before.content.strip(), after.content.strip(), 160)
        differing = f" Its arguments differ only in {NOTATION}: before {old}, then {new}."
    source = (
        f" The new value of {item.sourced_argument} is in the response to a call of "
        f"`{item.source_tool}` between these two calls."
        if item.sourced_argument and item.source_tool
        else ""
    )
    return (
        f"{failed}; the next call of this tool that returned no error is {item.event_id}."
        f"{differing}{source}"
    )


def _repeated_calls(trace: ParsedTrace, findings: Findings) -> Iterator[str]:
    calls_by_id = {call.event_id: call for call in trace.calls}
    for item in findings.repeated_calls[:_MAX_PER_KIND]:
        ids = ", ".join(item.event_ids)
        more = " and more" if item.count > len(item.event_ids) else ""
        calls = [calls_by_id[i] for i in item.event_ids if i in calls_by_id]
        responses = {call.response for call in calls if call.response}
        other = f", apart from {NOTATION}," if len(set(map(notation_of, calls))) > 1 else ""
        same = " All responses are the same." if len(responses) == 1 and not more else ""
        failed = f" {item.failed_count} of them failed." if item.failed_count else ""
        yield (
            f"The same call{other} was made {item.count} times ({ids}{more}): {item.call}."
            f"{same}{failed}"
        )


def _exit_codes(trace: ParsedTrace) -> Iterator[str]:
    codes: dict[tuple[int, bool], list[str]] = {}
    for call in trace.calls:
        if call.exit_code is not None:
            is_result = bool(call.exit_code) and not call.failure_message
            codes.setdefault((call.exit_code, is_result), []).append(call.event_id)
    for (code, is_result), ids in sorted(codes.items(), key=lambda item: item[0][0] == 0):
        shown = ", ".join(ids[:8])
        more = f" and {len(ids) - 8} more" if len(ids) > 8 else ""
        meaning = ", by their manuals a result of these commands" if is_result else ""
        yield f"Exit code {code}{meaning}: {shown}{more}."


def _refusal(trace: ParsedTrace, item: Refusal) -> str:
    if item.kind == "handed_over":
        text = f"With the call {item.event_id} the agent handed the user over"
        return f"{text}: {_quote(item.quote)}" if item.quote else f"{text}."
    request = f" to {item.request_event_id}" if item.request_event_id else ""
    text = f"The message {item.event_id}, the answer{request}, says: {_quote(item.quote)}"
    if trace.steps:  # agents of a team write to each other
        text = f"The message {item.event_id} says: {_quote(item.quote)}"
    if item.repeated_event_ids:
        text += f" Repeated in {', '.join(item.repeated_event_ids)}."
    if item.later_call_event_id:
        text += (
            f" The later call {item.later_call_event_id} concerns {item.shared_value} too: "
            f"{item.later_call}."
        )
    return text


def _consent(findings: Findings) -> Iterator[str]:
    for item in findings.unconfirmed_changes:
        yield (
            f"The instructions say {_quote(item.consent_rule)}. The last user message before the "
            f"call {item.event_id} of `{item.tool}` is {_quote(item.user_message)}."
        )


def _slowest(findings: Findings) -> Iterator[str]:
    item = findings.slowest_call
    if item and item.seconds >= _MIN_SLOW_SECONDS and item.time_share >= _MIN_TIME_SHARE:
        share = round(item.time_share * 100)
        yield f"The slowest call, {item.event_id}, took {item.seconds:g} s, {share} % of all."


def _quote(text: str) -> str:
    return f"“{text}”"


def fact_lines(facts: Sequence[str]) -> list[str]:
    return [f"- {fact}" for fact in facts]
