"""Facts about the calls of a run: how many there are, which failed, which worked after that, and
which were repeated.

A call has failed if its envelope says so (`failures.py`). The text of a response is only quoted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from memory_api.text.excerpts import excerpt, fold_for_comparison
from memory_api.trace_analysis.arguments import COMMAND_ARGUMENTS, ArgumentChange, diff_arguments
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.traces.schemas import Event, EventType

MAX_PER_KIND = 6
MAX_LISTED_IDS = 5
_MAX_TOOLS = 12
_MAX_CALLS_BETWEEN = 12
_MAX_VALUE_LENGTH = 64
_ANNOTATION = re.compile(r"\([^()]{1,80}\)$")
_ROLES = frozenset(
    {"ai", "assistant", "bot", "chatbot", "developer", "function", "human", "model"}
    | {"system", "tool", "user"}
)
"""Names that chat formats give to the parts of one conversation, which are one agent and its user.
"""
_WORD = re.compile(r"[\w./:+-]+")
"""Also a number, a date or an ID, with the punctuation after it."""
_MIN_SOURCED_LENGTH = 3
"""Characters. Shorter values occur everywhere."""
_MAX_SEARCHED_CHARACTERS = 50_000
"""Of one response."""


def agent_steps(events: Sequence[Event]) -> dict[str, int]:
    """How many messages and calls each agent has, in order of the first one; {} unless at least two
    agents took part. `Orchestrator (thought)` is `Orchestrator`.
    """
    acting = [e for e in events if e.event_type in (EventType.LLM_RESPONSE, EventType.TOOL_CALL)]
    names = [_ANNOTATION.sub("", event.agent.strip()).rstrip() for event in acting if event.agent]
    counts = Counter(name for name in names if name.casefold() not in _ROLES)
    return dict(counts) if len(counts) > 1 else {}


def find_counts(trace: ParsedTrace) -> Iterator[Fact]:
    if not trace.events:
        return
    values: dict[str, Any] = {
        "events": len(trace.events),
        "calls": len(trace.calls),
        "failed_count": sum(bool(call.failure_message) for call in trace.calls),
        "user_messages": len(trace.user_positions),
        "agent_messages": len(trace.reply_positions),
        "tools": dict(Counter(c.tool for c in trace.calls if c.tool).most_common(_MAX_TOOLS)),
        "agents": agent_steps(trace.events),
        "has_responses": any(call.has_response for call in trace.calls),
    }
    yield Fact(FactKind.COUNTS, (), values)


def find_failed_calls(trace: ParsedTrace) -> Iterator[Fact]:
    """The failed calls, those with the same tool and message as one fact. `works_later`: a later
    call of the tool did not fail. `is_last`: no event follows it.
    """
    last_success = {c.tool: c.position for c in trace.calls if not c.failure_message}
    groups: dict[tuple[str, str], list[ToolCall]] = {}
    for call in trace.calls:
        if call.failure_message:
            groups.setdefault((call.tool, excerpt(call.failure_message)), []).append(call)
    latest = sorted(groups.items(), key=lambda item: item[1][-1].position)[-MAX_PER_KIND:]
    for (tool, message), calls in latest:
        last = calls[-1]
        yield Fact(
            FactKind.FAILED_CALL,
            tuple(call.event_id for call in calls[:MAX_LISTED_IDS]),
            {
                "tool": tool,
                "message": message,
                "call": last.summary,
                "count": len(calls),
                "response": _response_id(trace, last),
                "works_later": last_success.get(tool, -1) > last.position,
                "is_last": (last.response_position or last.position) == len(trace.events) - 1,
            },
        )


def _response_id(trace: ParsedTrace, call: ToolCall) -> str | None:
    return None if call.response_position is None else trace.event_ids[call.response_position]


def find_corrected_calls(trace: ParsedTrace) -> Iterator[Fact]:
    """Failed calls with the next call of their tool that worked, if that has other arguments, but
    one in common or another value of the only one, and is at most 12 calls later. If an identical
    call worked too, the arguments were not the reason.
    """
    worked = {call.key for call in trace.calls if call.has_response and not call.failure_message}
    open_calls: dict[str, list[tuple[int, ToolCall]]] = {}
    count = 0
    for number, call in enumerate(trace.calls):
        if call.failure_message:
            if call.key not in worked:
                open_calls.setdefault(call.tool, []).append((number, call))
            continue
        if not call.has_response or not call.tool:
            continue
        failed = [
            (n, other)
            for n, other in open_calls.get(call.tool, [])
            if number - n <= _MAX_CALLS_BETWEEN and _is_correction(other, call)
        ]
        if failed and count < MAX_PER_KIND:
            count += 1
            yield _to_corrected(trace, [other for _, other in failed], call)
        if failed:
            open_calls.pop(call.tool)


def _is_correction(failed: ToolCall, call: ToolCall) -> bool:
    """Whether a call tries with other arguments what was rejected. Free text must share a word.
    A command that ended with an exit code was carried out, and another command is another call.
    """
    old, new = failed.arguments, call.arguments
    if failed.exit_code and not COMMAND_ARGUMENTS.isdisjoint(old):
        return False
    if "" in old or "" in new:
        if failed.exit_code:
            return False
        words = set(fold_for_comparison(old.get("", "")).split())
        return any(len(w) > 2 for w in words & set(fold_for_comparison(new.get("", "")).split()))
    if old.keys() == new.keys() and len(old) == 1:
        return True
    return any(new.get(name) == value for name, value in old.items()) or not old


def find_retried_calls(trace: ParsedTrace) -> Iterator[Fact]:
    """Calls that failed, and the first identical call that worked after them. `attempts` counts it,
    `seconds` is the time from the first of them, None if the trace does not state it.
    """
    failed: dict[tuple[str, str], list[ToolCall]] = {}
    count = 0
    for call in trace.calls:
        if call.failure_message:
            failed.setdefault(call.key, []).append(call)
        elif call.has_response and (earlier := failed.pop(call.key, None)) and count < MAX_PER_KIND:
            count += 1
            start, end = (trace.events[c.position].timestamp for c in (earlier[0], call))
            ids = (call.event_id, *(other.event_id for other in earlier))
            yield Fact(
                FactKind.RETRIED_CALL,
                ids[:MAX_LISTED_IDS],
                {
                    "tool": call.tool,
                    "message": excerpt(earlier[-1].failure_message, 120),
                    "call": call.summary,
                    "attempts": len(earlier) + 1,
                    "seconds": round((end - start).total_seconds(), 3)
                    if start and end and end >= start
                    else None,
                },
            )


def _to_corrected(trace: ParsedTrace, failed: Sequence[ToolCall], call: ToolCall) -> Fact:
    last = failed[-1]
    changes = diff_arguments(last.arguments, call.arguments)[:MAX_PER_KIND]
    return Fact(
        FactKind.CORRECTED_CALL,
        (call.event_id, last.event_id),
        {
            "tool": call.tool,
            "message": excerpt(last.failure_message, 120),
            "pattern": _without_values(excerpt(last.failure_message, 120), last, call),
            "failed_count": len(failed),
            "failed_call": last.summary,
            "call": call.summary,
            "changes": [asdict(change) for change in changes],
            "source": _source_of(trace, call, changes),
        },
    )


def _without_values(message: str, *calls: ToolCall) -> str:
    """A message with "…" for each number, date and ID that one of the calls has as an argument:
    the next run has others.
    """
    values = {_comparable(value) for call in calls for value in call.arguments.values()}

    def replace(match: re.Match[str]) -> str:
        word = match[0].rstrip("./:")
        is_value = any(map(str.isdigit, word)) and _comparable(word) in values
        return "…" + match[0][len(word) :] if is_value else match[0]

    return _WORD.sub(replace, message)


def _comparable(value: str) -> str:
    """The value, or the number that it is: "45.0" is "45"."""
    try:
        return str(float(value[:_MAX_VALUE_LENGTH]))
    except ValueError:
        return value.casefold()


def _source_of(
    trace: ParsedTrace, call: ToolCall, changes: Sequence[ArgumentChange]
) -> dict[str, str] | None:
    """The latest earlier response that contains the new value of a changed argument."""
    values = ((c.name, call.arguments.get(c.name, "")) for c in changes if c.after)
    sourced = [
        (name, _whole_words(value))
        for name, value in values
        if name and _MIN_SOURCED_LENGTH <= len(value) <= 200
    ]
    for other in reversed([c for c in trace.calls if c.position < call.position]):
        if other.failure_message or other.response_position is None:
            continue
        text = other.response[:_MAX_SEARCHED_CHARACTERS]
        for name, pattern in sourced:
            if pattern.search(text):
                event_id = trace.event_ids[other.response_position]
                return {"argument": name, "tool": other.tool, "event_id": event_id}
    return None


def _whole_words(value: str) -> re.Pattern[str]:
    """Finds a value that is not part of a longer word or number."""
    before = r"(?<![^\W_])" if value[0].isalnum() else ""
    after = r"(?![^\W_])" if value[-1].isalnum() else ""
    return re.compile(before + re.escape(value) + after)


def find_repeated_calls(trace: ParsedTrace) -> Iterator[Fact]:
    """Identical calls that failed each time, or that returned the same text each time, most
    repetitions first. A call between them that may have changed what they return starts a new
    group: a failed command may work after an edit, and a query after a known write. Failed calls
    that worked later are `find_retried_calls`. `changes_later`: a later identical call returned
    another text.
    """
    groups: dict[tuple[str, str, str, int], list[ToolCall]] = {}
    last: dict[tuple[str, str], ToolCall] = {}
    last_success: dict[tuple[str, str], int] = {}
    writes = 0
    changes: Counter[tuple[str, str]] = Counter()
    for call in trace.calls:
        if call.arguments and (call.failure_message or call.has_response):
            last[call.key] = call
            if call.failure_message:
                response = f"\0{call.failure_message}"
                since = changes.total() - changes[call.key] if call.exit_code is not None else 0
            else:
                response, since = call.response, writes
                last_success[call.key] = call.position
            groups.setdefault((*call.key, response, since), []).append(call)
        if call.may_modify and not call.is_check:
            changes[call.key] += 1
        writes += bool(call.writes and not call.failure_message)
    repeated = [
        calls
        for calls in groups.values()
        if len(calls) > 1
        and not (
            calls[0].failure_message and last_success.get(calls[0].key, -1) > calls[-1].position
        )
    ]
    for calls in sorted(repeated, key=lambda g: -len(g))[:MAX_PER_KIND]:
        first = calls[0]
        yield Fact(
            FactKind.REPEATED_CALL,
            tuple(call.event_id for call in (calls[1], *calls[2:], first)[:MAX_LISTED_IDS]),
            {
                "tool": first.tool,
                "call": first.summary,
                "count": len(calls),
                "has_failed": bool(first.failure_message),
                "is_check": first.is_check,
                "changes_later": last[first.key].response != calls[-1].response,
                "response": excerpt(first.failure_message or first.response, 120),
            },
        )


def find_exit_codes(trace: ParsedTrace) -> Iterator[Fact]:
    """The exit codes of calls, 0 last. `is_result`: by its manual, another code than 0 is a result
    of the command and no failure.
    """
    codes: dict[tuple[int, bool], list[str]] = {}
    for call in trace.calls:
        if call.exit_code is not None:
            is_result = bool(call.exit_code) and not call.failure_message
            codes.setdefault((call.exit_code, is_result), []).append(call.event_id)
    for (code, is_result), ids in sorted(codes.items(), key=lambda item: item[0][0] == 0):
        values = {"code": code, "is_result": is_result, "count": len(ids)}
        yield Fact(FactKind.EXIT_CODE, tuple(ids[:MAX_LISTED_IDS]), values)
