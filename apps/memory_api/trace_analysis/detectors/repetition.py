"""Detects repeated calls, failure streaks, and failed calls that later succeeded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from memory_api.text.excerpts import excerpt, fold_for_comparison
from memory_api.text.similarity import wording_similarity_uncached
from memory_api.trace_analysis.arguments import ArgumentChange, diff_arguments
from memory_api.trace_analysis.detectors.tool_errors import (
    parse_alternatives,
    strip_alternatives,
)
from memory_api.trace_analysis.findings import FailureStreak, RepairedCall, RepeatedCall
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.trace_analysis.vocabulary import Vocabulary

_STOP_WORDS = {"of", "in", "on", "and", "for", "to", "by", "with", "or", "at", "from", "is"}


def find_repeated_calls(trace: ParsedTrace) -> tuple[RepeatedCall, ...]:
    """Identical calls, at most five; those with most failures and repetitions first.

    A repetition counts if both calls failed, or returned the same text with no call between them
    that is known to change something. A command that failed counts with no other call between them
    that may have changed something: tests run again after an edit are no repetition.
    """
    groups: dict[tuple[str, str, int, str], list[ToolCall]] = {}
    write_count = 0
    changes: Counter[tuple[str, str]] = Counter()
    for call in trace.calls:
        if call.arguments and not trace.vocabulary.match("uncounted_tool", call.tool):
            count, response = (0, "") if call.failure_message else (write_count, call.response)
            if call.failure_message and call.exit_code is not None:
                count = changes.total() - changes[call.key]
            groups.setdefault((*call.key, count, response), []).append(call)
        if call.may_modify and not call.is_check:
            changes[call.key] += 1
        if call.writes and not call.failure_message and call.is_correct is None:
            write_count += 1
    results = [
        RepeatedCall(
            event_id=calls[1].event_id,
            event_ids=tuple(call.event_id for call in calls[:5]),
            tool=calls[0].tool,
            call=calls[0].summary,
            count=len(calls),
            failed_count=sum(
                1 for call in calls if call.failure_message or call.is_correct is False
            ),
            message=excerpt(strip_alternatives(calls[-1].failure_message, trace.vocabulary)),
        )
        for calls in groups.values()
        if len(calls) >= 2
    ]
    return tuple(sorted(results, key=lambda repeat: (-repeat.failed_count, -repeat.count))[:5])


def find_failure_streaks(trace: ParsedTrace) -> tuple[FailureStreak, ...]:
    """Three or more failed calls of a tool without a success between them. Longest first, at most
    three.
    """
    open_streaks: dict[str, list[ToolCall]] = {}
    streaks: list[list[ToolCall]] = []
    for call in trace.calls:
        if call.failure_message:
            open_streaks.setdefault(call.tool, []).append(call)
        elif len(open_streaks.get(call.tool, ())) >= 3:
            streaks.append(open_streaks.pop(call.tool))
        else:
            open_streaks.pop(call.tool, None)
    streaks += [calls for calls in open_streaks.values() if len(calls) >= 3]
    tried = {fold_for_comparison(call.arguments.get("", "")) for call in trace.calls}
    return tuple(
        _to_streak(calls, tried, trace.vocabulary)
        for calls in sorted(streaks, key=len, reverse=True)[:3]
    )


def _to_streak(calls: list[ToolCall], tried: set[str], vocabulary: Vocabulary) -> FailureStreak:
    has_named_arguments = any("" not in call.arguments for call in calls)
    values = (
        []
        if has_named_arguments
        else [call.summary if "[" in call.arguments[""] else call.arguments[""] for call in calls]
    )
    untried: list[str] = []
    for call in calls[:20]:
        untried += [
            alternative
            for alternative in parse_alternatives(call.response, vocabulary)[:5]
            if fold_for_comparison(alternative) not in tried and alternative not in untried
        ]
    shared_words = _shared_words(values) if values else ""
    return FailureStreak(
        event_id=calls[0].event_id,
        event_ids=tuple(call.event_id for call in calls[:5]),
        tool=calls[0].tool,
        count=len(calls),
        shared_words=shared_words,
        tried_arguments=tuple(dict.fromkeys(excerpt(value, 60) for value in values[:6])),
        untried_alternatives=tuple(_rank_alternatives(untried, " ".join(values[:6])))[:3],
        quoted_argument=_quoted_argument(calls, vocabulary),
        messages=tuple(
            dict.fromkeys(
                excerpt(strip_alternatives(call.failure_message, vocabulary), 90) for call in calls
            )
        )[:3],
        is_reported=all(call.failure_source == "tool" for call in calls),
    )


def _shared_words(values: list[str]) -> str:
    """The words that all values contain, in the order of the first, without outer stop words."""
    common_words = set(fold_for_comparison(values[0]).split())
    for value in values[1:]:
        common_words &= set(fold_for_comparison(value).split())
    words = [
        word
        for word in re.findall(r"[\w'&.\-]+", values[0][:400])
        if fold_for_comparison(word) in common_words
    ]
    while words and words[0].casefold() in _STOP_WORDS:
        words = words[1:]
    while words and words[-1].casefold() in _STOP_WORDS:
        words.pop()
    return excerpt(" ".join(words), 80)


def _rank_alternatives(offered: list[str], tried: str) -> list[str]:
    """Alternatives that share words with the tried arguments, best match first."""
    tried_words = set(fold_for_comparison(tried).split()) - _STOP_WORDS
    scored = [
        (
            len(tried_words & set(fold_for_comparison(alternative).split()))
            / (1 + len(fold_for_comparison(alternative).split())),
            alternative,
        )
        for alternative in offered
    ]
    return [
        alternative
        for score, alternative in sorted(scored, key=lambda pair: -pair[0])
        if score > 0.2
    ]


def _quoted_argument(calls: list[ToolCall], vocabulary: Vocabulary) -> str | None:
    for call in calls:
        value = call.arguments.get("", "").strip()
        if value[:1] in "\"'“‘「" and any(
            fold_for_comparison(alternative) == fold_for_comparison(value)
            for alternative in parse_alternatives(call.response, vocabulary)
        ):
            return excerpt(value, 80)
    return None


_MAX_CALLS_BETWEEN = 12
_MAX_REPAIRED_CALLS = 6
_MIN_TEXT_WORDS = 4


def find_repaired_calls(
    trace: ParsedTrace, wrong_event_ids: Collection[str] = ()
) -> tuple[RepairedCall, ...]:
    """The first success of a tool after a failure on the same subject, or a later success of the
    same call; at most six.

    Success means that the tool itself responded, without a failure. `wrong_event_ids` are calls
    that the ground truth contradicts: what they changed was no repair.
    """
    failed_by_tool: dict[str, list[ToolCall]] = {}
    failed_by_key: dict[tuple[str, str], list[ToolCall]] = {}
    results: list[RepairedCall] = []
    for index, call in enumerate(trace.calls):
        if len(results) == _MAX_REPAIRED_CALLS:
            break
        if call.failure_message:
            failed_by_tool.setdefault(call.tool, []).append(call)
            failed_by_key.setdefault(call.key, []).append(call)
            continue
        if call.is_correct is False or not _shows_success(trace, call):
            continue
        failed = failed_by_tool.pop(call.tool, [])
        same = failed_by_key.pop(call.key, []) if call.arguments else []
        if not failed or not _is_same_subject(failed[-1], call, trace.vocabulary):
            failed = same
        if (
            failed
            and call.event_id not in wrong_event_ids
            and index - _index_of(trace.calls, failed[-1], index) <= _MAX_CALLS_BETWEEN
        ):
            results.append(_to_repaired_call(trace, failed, call))
    return tuple(results)


def _shows_success(trace: ParsedTrace, call: ToolCall) -> bool:
    """Whether the tool itself answered without a failure: with text, or with an exit code."""
    if call.response_position is None or call.failure_source != "tool":
        return False
    return call.exit_code is not None or bool(call.response.strip())


def _index_of(calls: list[ToolCall], call: ToolCall, end: int) -> int:
    for index in range(end - 1, max(-1, end - _MAX_CALLS_BETWEEN - 2), -1):
        if calls[index] is call:
            return index
    return -_MAX_CALLS_BETWEEN


def _is_same_subject(failed: ToolCall, succeeded: ToolCall, vocabulary: Vocabulary) -> bool:
    """Free text must share a word or be an offered alternative. Named arguments must share a value,
    or half of the words of a text such as a query or code.
    """
    failed_arguments, new_arguments = failed.arguments, succeeded.arguments
    if "" in failed_arguments and "" in new_arguments:
        alternatives = {
            fold_for_comparison(alternative)
            for alternative in parse_alternatives(failed.response, vocabulary)
        }
        common_words = set(fold_for_comparison(failed_arguments[""]).split()) & set(
            fold_for_comparison(new_arguments[""]).split()
        )
        return fold_for_comparison(new_arguments[""]) in alternatives or any(
            len(word) > 2 for word in common_words
        )
    return any(
        new_arguments.get(name) == value or _is_reworded(value, new_arguments.get(name, ""))
        for name, value in failed_arguments.items()
    )


def _is_reworded(old: str, new: str) -> bool:
    is_text = min(len(old.split()), len(new.split())) >= _MIN_TEXT_WORDS
    return is_text and wording_similarity_uncached(old[:4_000], new[:4_000]) >= 0.5


def _to_repaired_call(
    trace: ParsedTrace, failed: list[ToolCall], succeeded: ToolCall
) -> RepairedCall:
    last = failed[-1]
    changes = diff_arguments(last.arguments, succeeded.arguments)
    sourced_argument, source_tool = _argument_source(trace, last, succeeded, changes)
    alternatives = {
        fold_for_comparison(alternative)
        for call in failed
        for alternative in parse_alternatives(call.response, trace.vocabulary)
    }
    return RepairedCall(
        failed_event_id=last.event_id,
        event_id=succeeded.event_id,
        tool=succeeded.tool,
        failure_count=len(failed),
        message=excerpt(strip_alternatives(last.failure_message, trace.vocabulary), 120),
        kind=trace.vocabulary.classify_error(last.failure_message)[0],
        failed_call=last.summary,
        successful_call=succeeded.summary,
        argument_changes=changes[:6],
        sourced_argument=sourced_argument,
        source_tool=source_tool,
        write_calls_between=tuple(
            dict.fromkeys(
                call.summary
                for call in trace.calls[:400]
                if last.position < call.position < succeeded.position and call.writes
            )
        )[-2:],
        is_reported=all(call.failure_source == "tool" for call in failed),
        used_alternative=bool(alternatives)
        and fold_for_comparison(succeeded.arguments.get("", "")) in alternatives,
    )


def _argument_source(
    trace: ParsedTrace, failed: ToolCall, succeeded: ToolCall, changes: tuple[ArgumentChange, ...]
) -> tuple[str | None, str | None]:
    """The changed argument whose new value a response between the two calls contains, and the tool
    of that response.
    """
    changed_arguments = [
        (change.name, succeeded.arguments.get(change.name, ""))
        for change in changes
        if change.after
    ]
    for call in reversed(trace.calls[:200]):
        if not failed.position < call.position < succeeded.position or not call.response:
            continue
        for name, value in changed_arguments:
            if len(value) >= 4 and value in call.response[:50_000]:
                return name, call.tool
    return None, None
