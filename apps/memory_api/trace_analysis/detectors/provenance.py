"""Detects where the arguments of calls came from."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from memory_api.text.excerpts import excerpt, first_sentence, fold_for_comparison
from memory_api.trace_analysis.findings import (
    ArgumentOrigin,
    LookupHop,
    ValueOrigin,
    ValueSource,
)
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.traces.schemas import Event, EventType

_MAX_RESPONSE_CHARACTERS = 30_000
_CONFIRMATION = re.compile(
    r"^\W*(?:yes|yeah|yep|sure|ok(?:ay)?|please (?:do|go|proceed)|go ahead|that(?:'s"
    r"| is) (?:correct|right|fine)|correct"
    r"|はい|ええ|それで|大丈夫|そちらで)",
    re.IGNORECASE,
)
_NON_DECIDING_TOOL = re.compile(r"think|calculat|note|transfer|hand_?over", re.IGNORECASE)
_LOOKUP_TOOL = re.compile(r"search|look_?up|find|browse|wiki|query", re.IGNORECASE)
_IDENTIFIER_CHARACTER = re.compile(r"[\d_#@]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ZERO_DECIMALS = re.compile(r"(?<=\d)\.0+(?![\d.])")
_TRAILING_ZEROS = re.compile(r"(?<![\d.])(\d{3,}\.\d{0,9}[1-9])0+(?![\d.])")
"""18442.60 is 18442.6. Versions are left out: 3.10 is not 3.1."""
_FLOAT_NOISE = re.compile(r"(?<![\d.])\d+\.\d{9,}(?![\d.])")
"""30.180000000000007: a figure that a program computed."""
_CODE = re.compile(r"[A-Z]{2,5}")
"""MIA, the airport, is not Mia, the passenger."""
_MIN_VALUE_LENGTH = 3
"""Characters. Shorter values occur everywhere."""
_MAX_VALUE_LENGTH = 200
_MAX_TRACED_ARGUMENTS = 12
_MAX_TRACED_ITEMS = 8
"""Of a list."""
_MAX_TRACED_EVENTS = 600
_UNTRACED_VALUES = frozenset({"true", "false", "null", "none", "yes", "no"})


def find_argument_origins(trace: ParsedTrace) -> ArgumentOrigin | None:
    """The origins of the deciding call: the last successful call of a tool that changes something,
    else the last call with named arguments of a tool that may.
    """
    candidates = [
        call
        for call in trace.calls
        if call.arguments
        and not call.failure_message
        and call.is_correct is None
        and "" not in call.arguments
        and call.writes is not False
        and not _NON_DECIDING_TOOL.search(call.tool)
    ]
    if not candidates:
        return None
    last_write = next((call for call in reversed(candidates) if call.writes), None)
    if last_write is None and any(call.response for call in trace.calls):
        return None
    call = last_write or candidates[-1]
    origins = trace_arguments(trace, call)
    user_position = trace.last_before(trace.user_positions, call.position)
    user_answer = (
        first_sentence(trace.content_at(user_position), 90)
        if user_position is not None and call.writes
        else ""
    )
    return ArgumentOrigin(
        event_id=call.event_id,
        tool=call.tool,
        call=call.summary,
        from_tools=tuple(
            (origin.name, origin.value, origin.tool)
            for origin in origins
            if origin.source == "tool"
            and len(origin.value) >= 5
            and _IDENTIFIER_CHARACTER.search(origin.value)
        )[:4],
        from_user=tuple(
            (origin.name, origin.event_id)
            for origin in origins
            if origin.source == "user" and origin.event_id
        )[:6],
        reused_arguments=_reused_arguments(trace.calls, call),
        user_confirmation=user_answer if _CONFIRMATION.match(user_answer) else None,
        is_write=bool(call.writes),
        origins=origins,
    )


def trace_arguments(trace: ParsedTrace, call: ToolCall) -> tuple[ValueOrigin, ...]:
    """For each argument of a call, the event that contains its value first. Values that are short
    or ordinary, such as `true`, are left out.
    """
    texts = [
        SearchableText.of(event.content[:_MAX_RESPONSE_CHARACTERS])
        for event in _earlier(trace, call)
    ]
    return tuple(
        _first_mention(trace, name, part, texts)
        for name, value in list(call.arguments.items())[:_MAX_TRACED_ARGUMENTS]
        for part in _parts_of(value)
        if is_traceable(part)
    )


def _parts_of(value: str) -> list[str]:
    """The items of a list of words (`arguments.py` joins them by commas), else the value."""
    parts = value.split(", ")
    is_list = len(parts) > 1 and all(part and " " not in part for part in parts)
    return parts[:_MAX_TRACED_ITEMS] if is_list else [value]


def _earlier(trace: ParsedTrace, call: ToolCall) -> Sequence[Event]:
    return trace.events[: min(call.position, _MAX_TRACED_EVENTS)]


def is_traceable(value: str) -> bool:
    """Whether the first event with a value says something about where it comes from."""
    plain = value.strip()
    min_length = _MIN_VALUE_LENGTH if plain.isascii() else 2
    return (
        min_length <= len(plain) <= _MAX_VALUE_LENGTH and plain.casefold() not in _UNTRACED_VALUES
    )


def _first_mention(
    trace: ParsedTrace, name: str, value: str, texts: Sequence[SearchableText]
) -> ValueOrigin:
    """The first of the `texts` of events that contains a value as a whole: a figure that the agent
    computed and the user repeated comes from the agent.
    """
    shown = excerpt(value, 60)
    position = next((n for n, text in enumerate(texts) if text.contains(value)), None)
    if position is None:
        in_task = SearchableText.of(trace.full_task).contains(value)
        return ValueOrigin(name, shown, "task" if in_task else "none")
    source = _SOURCES[trace.events[position].event_type]
    tool = next((c.tool for c in trace.calls if position in (c.position, c.response_position)), "")
    is_tool = source == "tool" or trace.events[position].event_type is EventType.TOOL_CALL
    return ValueOrigin(name, shown, source, trace.event_ids[position], tool if is_tool else "")


_SOURCES: dict[EventType, ValueSource] = {
    EventType.USER_MESSAGE: "user",
    EventType.LLM_RESPONSE: "agent",
    EventType.LLM_CALL: "agent",
    EventType.TOOL_CALL: "agent",
    EventType.TOOL_RESPONSE: "tool",
    EventType.ERROR_EVENT: "tool",
    EventType.SYSTEM_EVENT: "instructions",
}


@dataclass(frozen=True)
class SearchableText:
    """A text prepared for several searches for values."""

    text: str
    folded: str

    @classmethod
    def of(cls, text: str) -> SearchableText:
        return cls(text, fold_value(text))

    def contains(self, value: str) -> bool:
        """Whether a value occurs that is not part of a longer word or number. `#` before it does
        not count; a code of 2 to 5 capital letters occurs only in capitals.
        """
        plain = value.strip().removeprefix("#")
        if _CODE.fullmatch(plain):
            return contains_value(self.text, plain)
        return contains_value(self.folded, fold_value(plain))


def contains_value(text: str, value: str) -> bool:
    """Whether a text contains a value that is not part of a longer word or number."""
    if not value:
        return False
    if not value.isascii():
        return value in text or _compact(value) in _compact(text)
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if not (_joins(text, start - 1, start) or _joins(text, end - 1, end)):
            return True
        start = text.find(value, start + 1)
    return False


def _joins(text: str, left: int, right: int) -> bool:
    """Whether two neighboring characters belong to one word or number."""
    if left < 0 or right >= len(text):
        return False
    a, b = text[left], text[right]
    if not (a.isascii() and b.isascii()):
        return False
    if a == "." or b == ".":
        outer = text[left - 1 : left] if a == "." else text[right + 1 : right + 2]
        inner = b if a == "." else a
        return outer.isdigit() and inner.isdigit()
    return (a.isalnum() or a == "_") and (b.isalnum() or b == "_")


def _compact(text: str) -> str:
    return re.sub(r"[\s、。，,.・'\"「」『』]", "", text)


def fold_value(text: str) -> str:
    """Remove differences in case, width, separators of thousands, zeros at the end of
    decimals, and rounding errors.
    """
    folded = unicodedata.normalize("NFKC", text).casefold().strip()
    if "." in folded:
        folded = _FLOAT_NOISE.sub(lambda match: str(round(float(match.group()), 6)), folded)
    if "," in folded:
        folded = _THOUSANDS.sub("", folded)
    if "." in folded:
        folded = _TRAILING_ZEROS.sub(r"\1", _ZERO_DECIMALS.sub("", folded))
    return folded


def _reused_arguments(
    calls: list[ToolCall], deciding_call: ToolCall
) -> tuple[tuple[str, str], ...]:
    """Arguments that an earlier call of another tool had with the same value."""
    results: list[tuple[str, str]] = []
    for name, value in deciding_call.arguments.items():
        if any(
            call.position < deciding_call.position
            and call.tool != deciding_call.tool
            and call.arguments.get(name) == value
            for call in calls[:300]
        ):
            results.append((name, excerpt(value, 40)))
    return tuple(results[:3])


def find_lookup_hops(trace: ParsedTrace) -> tuple[LookupHop, ...]:
    """Free-text lookups whose argument occurs in an earlier response but not in the question; at
    most three.
    """
    question = (
        fold_for_comparison(trace.content_at(trace.user_positions[0]))
        if trace.user_positions
        else fold_for_comparison(trace.task)
    )
    results: list[LookupHop] = []
    searches = [
        call
        for call in trace.calls[:60]
        if call.arguments.get("") and not call.failure_message and _LOOKUP_TOOL.search(call.tool)
    ]
    for index, call in enumerate(searches[1:], 1):
        name = call.arguments[""].strip()
        folded_name = fold_for_comparison(re.sub(r"(?<!\s)\s*\([^)]{0,200}\)$", "", name))
        if (
            len(folded_name) < 4
            or len(name) > 80
            or folded_name in question
            or call.is_correct is not None
        ):
            continue
        for earlier in searches[max(0, index - 4) : index]:
            if folded_name.split()[0] in earlier.response[
                :_MAX_RESPONSE_CHARACTERS
            ].casefold() and folded_name in fold_for_comparison(earlier.response[:4_000]):
                results.append(
                    LookupHop(call.event_id, earlier.summary, call.summary, excerpt(name, 60))
                )
                break
    return tuple(results[:3])
