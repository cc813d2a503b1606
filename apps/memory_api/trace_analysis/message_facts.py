"""Facts about the messages of a run: how it ended, the error that it reports, numbers of its answer
that nothing before it contains, and rules that the user stated.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from memory_api.text.excerpts import excerpt
from memory_api.text.numbers import Number, find_numbers, parse_number
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.trace_analysis.failures import error_message
from memory_api.trace_analysis.ground_truth import find_answer
from memory_api.trace_analysis.parser import ParsedTrace
from memory_api.traces.schemas import ErrorInfo, EventType, OutcomeType

_QUOTED_LENGTH = 200
_MAX_ANSWER_CHARACTERS = 4_000
_MAX_SEARCHED_CHARACTERS = 2_000_000
"""Of a whole trace. In a longer one, no number is said to be missing."""
_CHUNK, _OVERLAP = 10_000, 100
_MIN_DIGITS = 2
"""One digit may number a list."""
_UNIT = re.compile(r"[^\d.,]+")
_MAX_NUMBERS = 8
_MAX_RULE_LENGTH = 500
_MIN_RULE_WORDS = 3
_OBJECTION = re.compile(
    r"\W*(?:no\b|nope\b|wrong\b|incorrect\b|stop\b|that(?:['’]s| is) (?:not|wrong|incorrect)\b"
    r"|you (?:forgot|should have|were (?:told|supposed))\b"
    r"|いいえ|いや[、,。]|違い?ます|違う|だめ|ダメ)",
    re.IGNORECASE,
)
_RULE = re.compile(
    r"(?:^|[.!,;:–—-]\s*|\b(?:and|but)\s+)(?:please\s+)?(?:always|never|from now on|next time"
    r"|remember(?: that| this| to|:)|do(?:n['’]t| not) ever)\b"
    r"|\b(?:you|we)\s+(?:must|should|have to|need to)\s+(?:always|never|not)\b(?!\s+have\b)",
    re.IGNORECASE,
)
_JAPANESE_RULE = re.compile(
    r"(?:必ず|常に|いつも|絶対に?|今後は|次回(?:から|以降)|決して)[^。！!?？]{2,80}"
    r"(?:ください|下さい|こと|なさい|しろ|して|ないで)(?:[。！!]|$)"
)
_LASTING = re.compile(
    r"\b(?:from now on|remember (?:that|this|to)\b|remember:)|今後は|次回(?:から|以降)|覚えて",
    re.IGNORECASE,
)
_QUESTION = re.compile(r"[?？]\s*$|か[。.]?\s*$")


def find_error(trace: ParsedTrace, error: ErrorInfo | None, outcome: OutcomeType) -> Iterator[Fact]:
    """The error that the client stated; without it, that of the last event with an error, unless a
    later call worked or the run succeeded: then it is only one of the rejected calls.
    """
    if error is not None and error.error_message:
        values = {"category": error.error_category.value}
        values["message"] = excerpt(error.error_message, 300)
        yield Fact(FactKind.ERROR, (), values | {"is_stated": True})
        return
    if outcome is OutcomeType.SUCCESS:
        return
    worked = [
        call.response_position
        for call in trace.calls
        if call.response_position is not None and not call.failure_message
    ]
    for position in range(len(trace.events) - 1, max(worked, default=-1), -1):
        event = trace.events[position]
        if event.error or event.event_type is EventType.ERROR_EVENT:
            message = error_message(event.error) if event.error else ""
            content = excerpt(event.content, 300)
            shown = message if message and message not in content else content or message
            values: dict[str, Any] = {"category": "", "message": shown, "is_stated": False}
            values |= {"follow": len(trace.events) - position - 1}
            yield Fact(FactKind.ERROR, (trace.event_ids[position],), values)
            return


def _final_answer(trace: ParsedTrace) -> tuple[int, str] | None:
    """The answer of the run, unless it is a message that a call follows."""
    answer = find_answer(trace)
    if answer is None or not trace.calls:
        return answer
    is_message = trace.events[answer[0]].event_type is EventType.LLM_RESPONSE
    return None if is_message and trace.calls[-1].position > answer[0] else answer


def find_end(trace: ParsedTrace) -> Iterator[Fact]:
    """Quotations of how the run ended: its last message, or its last call with the response."""
    answer = _final_answer(trace)
    if answer is not None:
        position, text = answer
        is_message = trace.events[position].event_type is EventType.LLM_RESPONSE
        values: dict[str, Any] = {"of": "message" if is_message else "answer"}
        values["text"] = excerpt(text, _QUOTED_LENGTH)
        yield Fact(FactKind.QUOTATION, (trace.event_ids[position],), values)
    if not trace.calls:
        return
    last = trace.calls[-1]
    spoken = trace.reply_positions[-1] if trace.reply_positions else -1
    is_end = answer is None and last.position > spoken
    values = {
        "of": "call",
        "call": last.summary,
        "number": len(trace.calls),
        "is_end": is_end,
        "text": excerpt(last.response, _QUOTED_LENGTH),
        "response": None
        if last.response_position is None
        else trace.event_ids[last.response_position],
    }
    if is_end or (answer is not None and answer[0] != last.position):
        yield Fact(FactKind.QUOTATION, (last.event_id,), values)


def find_unsourced_numbers(trace: ParsedTrace) -> Iterator[Fact]:
    """The numbers of the answer that neither the task nor an earlier event contains. 18.50 and
    18.5 are the same number.
    """
    answer = _final_answer(trace)
    if answer is None:
        return
    position, text = answer
    numbers = [
        number
        for number in find_numbers(text[:_MAX_ANSWER_CHARACTERS])
        if sum(c.isdigit() for c in number.text) >= _MIN_DIGITS
    ]
    texts = [trace.full_task, *(trace.content_at(n) for n in range(position))]
    if not numbers or sum(map(len, texts)) > _MAX_SEARCHED_CHARACTERS:
        return
    known = {key for earlier in texts for key in _keys_of(earlier)}
    missing = list(dict.fromkeys(n.text for n in numbers if _keys(n).isdisjoint(known)))
    if missing:
        values = {"numbers": missing[:_MAX_NUMBERS], "count": len(missing)}
        yield Fact(FactKind.UNSOURCED, (trace.event_ids[position],), values)


def _keys(number: Number) -> set[Decimal]:
    """The values that a number may have, with and without its unit: 3 km is 3000 and 3."""
    plain = parse_number(_UNIT.sub("", number.text))
    return {*number.readings, *(plain.readings if plain else ())}


def _keys_of(text: str) -> Iterator[Decimal]:
    """The values of the numbers in a text of any length. Chunks overlap: none cuts a number."""
    for start in range(0, len(text), _CHUNK):
        for number in find_numbers(text[start : start + _CHUNK + _OVERLAP]):
            yield from _keys(number)


def find_user_rules(trace: ParsedTrace) -> Iterator[Fact]:
    """Rules of the user, word for word: messages that the client marks with `rule: true` in their
    metadata, and after a reply of the agent those that `states_rule` recognizes.
    """
    for position in trace.user_positions:
        event, text = trace.events[position], " ".join(trace.content_at(position).split())
        replies = trace.reply_positions[: bisect_left(trace.reply_positions, position)]
        if event.metadata.get("rule") is True or (replies and states_rule(text)):
            ids = (trace.event_ids[n] for n in (position, *replies[-1:]))
            yield Fact(FactKind.USER_RULE, tuple(ids), {"text": text})


def states_rule(text: str) -> bool:
    """Whether a short message corrects the agent and states a rule, in English or Japanese. What
    such a message says depends on its language. If unsure, it does not.
    """
    if (
        len(text) > _MAX_RULE_LENGTH
        or _QUESTION.search(text)
        or not (_RULE.search(text) or _JAPANESE_RULE.search(text))
    ):
        return False
    has_content = len(text.split()) >= _MIN_RULE_WORDS or not text.isascii()
    return has_content and bool(_OBJECTION.match(text) or _LASTING.search(text))
