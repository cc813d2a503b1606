"""Detects refusals, handovers to people, and changes without the required consent."""

from __future__ import annotations

import re
from dataclasses import replace

from memory_api.text.excerpts import excerpt, first_sentence
from memory_api.text.similarity import wording_similarity
from memory_api.trace_analysis.findings import Refusal, UnconfirmedChange
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall

_FIRST_PERSON_REFUSAL = re.compile(
    r"\b(?:I|we)(?:(?:'m| am|'re| are) (?:unable|not able|not allowed|not permitted)"
    r"|(?: cannot| can't| can not| won't| will not| must decline))\b"
    r"|できません|できかねます|いたしかねます|お断り|お答えできません|対応しておりません"
    r"|承れません",
    re.IGNORECASE,
)
_STATED_LIMIT = re.compile(
    r"\b(?:cannot|can't|not) be (?:cancell?ed|changed|modified|updated|refunded|processed|done"
    r"|removed)\b|\bnot (?:allowed|permitted|possible|eligible)\b|\bagainst (?:the|our) policy\b",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:until|unless|before|without (?:your|the|a|an)|once you|if you|only if|as long as)\b"
    r"|(?:まで|ないと|なければ|場合は)",
    re.IGNORECASE,
)
"""A sentence with a condition asks for something or recites a rule. It declines nothing yet."""
_IDENTIFIER = re.compile(r"(?<![\w-])#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z\d])[\w-]{4,40}(?![\w-])")
_MAX_REFUSALS = 5
_SAME_REFUSAL_SIMILARITY = 0.6
_NOTE_START = re.compile(r"^\W*(?:please )?note\b", re.IGNORECASE)
_HAND_OVER = re.compile(r"transfer|hand_?over|escalate", re.IGNORECASE)
_CONSENT_RULE = re.compile(
    r"\b(?:explicit|user)\b[^.\n]{0,40}\bconfirm|(?:確認|同意)を(?:得|取)", re.IGNORECASE
)
_CONSENT = re.compile(
    r"\b(?:yes|yeah|yep|sure|ok(?:ay)?|please|confirm\w*|proceed|go ahead|correct|right"
    r"|agree\w*|do it|fine|sounds good"
    r"|let's|I'll (?:go|take)|I'd like|go with|that works|thank\w*|perfect|great)\b|はい|お願い"
    r"|大丈夫|それで|いいです|了解|進めて|ぜひ",
    re.IGNORECASE,
)


def find_refusals(trace: ParsedTrace) -> tuple[Refusal, ...]:
    """The messages that decline what the user asked for, and calls that hand the user over, in
    order; at most five, the first ones and handovers preferred.

    A message declines in the first person and without a condition, or states a limit as its first
    sentence. Repetitions of a refusal are listed with the first one.
    """
    results: list[Refusal] = []
    if trace.calls or trace.instruction_positions:
        for position in trace.reply_positions[:400]:
            quote = _refusing_sentence(trace.content_at(position)[:2_000])
            if quote and trace.last_before(trace.user_positions, position) is not None:
                _add_refusal(results, _to_refusal(trace, position, quote))
    handovers = [
        Refusal(
            call.event_id,
            "handed_over",
            first_sentence(next(iter(call.arguments.values()), "")),
            _last_request(trace, call.position)[0],
            request_event_id=_last_request(trace, call.position)[1],
        )
        for call in trace.calls
        if _HAND_OVER.search(call.tool) and not call.failure_message
    ][:2]
    order = {event: index for index, event in enumerate(trace.event_ids)}
    chosen = [*results[: _MAX_REFUSALS - len(handovers)], *handovers]
    return tuple(sorted(chosen, key=lambda refusal: order.get(refusal.event_id, 0)))


def _refusing_sentence(text: str) -> str:
    """The first sentence that declines; "" if there is none."""
    for match in _FIRST_PERSON_REFUSAL.finditer(text):
        quote = _sentence_around(text, match.start())
        if not _CONDITION.search(quote) and not quote.endswith("?"):
            return quote
    match = _STATED_LIMIT.search(text)
    if match is None:
        return ""
    quote = _sentence_around(text, match.start())
    is_opening = not text[: match.start()].strip(" \n").count("\n") and quote[:20] in text[:200]
    is_recital = _NOTE_START.match(quote) or _CONDITION.search(quote)
    return quote if is_opening and not is_recital else ""


def _to_refusal(trace: ParsedTrace, position: int, quote: str) -> Refusal:
    request, request_event_id = _last_request(trace, position)
    call, value = _later_call(trace, position, f"{_request_text(trace, position)}\n{quote}")
    return Refusal(
        trace.event_ids[position],
        "declined",
        quote,
        request,
        request_event_id=request_event_id,
        later_call=call.summary if call else None,
        later_call_event_id=call.event_id if call else None,
        shared_value=value,
    )


def _add_refusal(results: list[Refusal], refusal: Refusal) -> None:
    """Append the refusal, or note it as a repetition of an earlier one."""
    for index, earlier in enumerate(results):
        if wording_similarity(earlier.quote, refusal.quote) >= _SAME_REFUSAL_SIMILARITY:
            repeated = (*earlier.repeated_event_ids, refusal.event_id)
            results[index] = replace(earlier, repeated_event_ids=repeated[:4])
            return
    results.append(refusal)


def _sentence_around(text: str, position: int) -> str:
    start = max(text.rfind(mark, 0, position) for mark in (". ", "\n", "。", "! ", "? ", "! ")) + 1
    ends = [
        end
        for end in (text.find(mark, position + 3) for mark in (". ", ".\n", "\n", "。"))
        if end >= 0
    ]
    return excerpt(text[start : min(ends, default=len(text)) + 1].strip(" -*\n"))


def _request_text(trace: ParsedTrace, position: int) -> str:
    user_position = trace.last_before(trace.user_positions, position)
    return trace.content_at(user_position)[:4_000] if user_position is not None else ""


def _last_request(trace: ParsedTrace, position: int) -> tuple[str, str | None]:
    """The first sentence of the last user message, and its event ID."""
    user_position = trace.last_before(trace.user_positions, position)
    if user_position is None:
        return "", None
    return first_sentence(trace.content_at(user_position), 120), trace.event_ids[user_position]


def _later_call(trace: ParsedTrace, position: int, text: str) -> tuple[ToolCall | None, str | None]:
    """The first later successful call of a tool that changes something, with an identifier of the
    text among its arguments; and that identifier. An identifier that most calls have, such as the
    user's, does not count.
    """
    identifiers = {match.group().lstrip("#") for match in _IDENTIFIER.finditer(text)}
    if not identifiers:
        return None, None
    arguments = [set(call.arguments.values()) for call in trace.calls]
    common = {
        value
        for value in identifiers
        if 2 * sum(1 for values in arguments if value in values) > max(2, len(arguments))
    }
    for call in trace.calls:
        if call.position <= position or call.failure_message or not call.writes:
            continue
        shared = (identifiers - common) & set(call.arguments.values())
        if shared and not _HAND_OVER.search(call.tool):
            return call, min(shared)
    return None, None


def _find_consent_rule(trace: ParsedTrace) -> str | None:
    for position in trace.instruction_positions[:3]:
        text = trace.content_at(position)[:20_000]
        match = _CONSENT_RULE.search(text)
        if match:
            return _sentence_around(text, match.start())
    return None


def find_unconfirmed_changes(trace: ParsedTrace) -> tuple[UnconfirmedChange, ...]:
    """Write calls without consent in the last user message, if the instructions require it; at most
    two.
    """
    rule = _find_consent_rule(trace)
    if rule is None:
        return ()
    results: list[UnconfirmedChange] = []
    for call in trace.calls[:400]:
        user_position = trace.last_before(trace.user_positions, call.position)
        if not call.writes or _HAND_OVER.search(call.tool) or user_position is None:
            continue
        if not _CONSENT.search(trace.content_at(user_position)[:3_000]):
            results.append(
                UnconfirmedChange(
                    call.event_id,
                    call.tool,
                    excerpt(rule.strip(" -"), 140),
                    first_sentence(trace.content_at(user_position), 120),
                )
            )
    return tuple(results[:2])
