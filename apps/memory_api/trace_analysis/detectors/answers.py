"""Detects the final answer, missing outputs and failed assertions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from memory_api.text.excerpts import excerpt, first_sentence, fold_for_comparison
from memory_api.trace_analysis.answer_comparison import compare_answers
from memory_api.trace_analysis.detectors.claims import final_answer
from memory_api.trace_analysis.findings import FailedAssertion, FinalAnswer, MissingOutput
from memory_api.trace_analysis.ground_truth import (
    answer_text,
    expected_answer,
    final_answer_call,
    is_answer_call,
    missing_outputs,
)
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall
from memory_api.trace_analysis.test_reports.parse import parse_test_report
from memory_api.trace_analysis.values import fold_long_text

_WORD_REST = r"[\w'’.]*+(?:-(?![A-Z])[\w'’.]++)*+"
"""The rest of a word. A hyphen before a capital separates words, so there is one way to split."""
_PROPER_NAME = re.compile(
    r"\"[^\"\n]{3,60}\"|“[^”\n]{3,60}”"
    r"|(?<![\w'’.\-])(?:[A-Z](?=[\w'’.\-])" + _WORD_REST + r"|[0-9]{4})"
    r"(?:[ \-](?:of|the|and|de|[A-Z&]"
    + _WORD_REST
    + r")){0,12}[ \-][A-Z](?=[\w'’.\-])"
    + _WORD_REST
)
_QUESTION_WORD = re.compile(
    r"^(?:Which|What|Who|When|Where|Are|Is|Was|Were|In|How|Did|Do|The|A|An|On|Of)\b\s*"
)
_MAX_SEARCHED_CHARACTERS = 500_000
_MIN_SEARCHED_CHARACTERS, _MAX_SEARCHED_WORDS = 4, 8


def find_final_answer(trace: ParsedTrace, ground_truth: Any) -> FinalAnswer | None:
    """The last answer call, else the last message if an answer was expected."""
    expected = expected_answer(ground_truth)
    call = final_answer_call(trace.calls)
    if call is None:
        return _answer_from_message(trace, expected) if expected else None
    given_answer = answer_text(call)
    if not given_answer or (call.is_correct is None and expected is None):
        return None
    message_position = trace.last_before(trace.reply_positions, call.position)
    task = trace.content_at(trace.user_positions[0])[:600] if trace.user_positions else trace.task
    return FinalAnswer(
        event_id=call.event_id,
        given_answer=excerpt(given_answer, 120),
        is_correct=call.is_correct,
        reasoning=_last_sentences(trace.content_at(message_position))
        if message_position is not None
        else "",
        reasoning_event_id=trace.event_ids[message_position]
        if message_position is not None
        else None,
        unsearched_names=_unsearched_names(task, trace.calls),
        **_compare_with_expected(trace, given_answer, expected, call.position),
    )


def _answer_from_message(trace: ParsedTrace, expected: str) -> FinalAnswer | None:
    stated = final_answer(trace.steps, trace.vocabulary)
    if stated:
        step, answer = stated
        return FinalAnswer(
            event_id=step.event_id,
            given_answer=excerpt(answer, 120),
            **_compare_with_expected(trace, answer, expected, step.position),
        )
    position = trace.reply_positions[-1] if trace.reply_positions else None
    if position is None or (trace.calls and trace.calls[-1].position > position):
        return FinalAnswer(
            event_id=None,
            given_answer="",
            **_compare_with_expected(trace, "", expected, len(trace.events)),
        )
    text = trace.content_at(position)
    return FinalAnswer(
        event_id=trace.event_ids[position],
        given_answer=first_sentence(text, 120),
        **_compare_with_expected(trace, text, expected, position),
    )


def _compare_with_expected(
    trace: ParsedTrace, given_answer: str, expected: str | None, position: int
) -> dict[str, Any]:
    given_text = fold_for_comparison(given_answer)
    given_event_id, given_call = _find_response_with(trace, given_text, position)
    comparison: dict[str, Any] = {
        "given_answer_event_id": given_event_id,
        "given_answer_call": given_call,
        "is_searched": sum(len(call.response) for call in trace.calls) < _MAX_SEARCHED_CHARACTERS
        and _is_searchable(given_text),
    }
    if expected is None:
        return comparison
    expected_text = fold_for_comparison(
        re.sub(r"(?<!\s)\s*\([^)]{0,200}\)\s*$", "", expected)
    ) or fold_for_comparison(expected)
    expected_event_id, expected_call = _find_response_with(trace, expected_text, len(trace.events))
    relation = compare_answers(given_answer, expected).relation
    return comparison | {
        "expected_answer": excerpt(expected, 120),
        "relation_to_expected": relation if given_text else None,
        "expected_answer_event_id": expected_event_id,
        "expected_answer_call": expected_call,
        "is_searched": comparison["is_searched"] and _is_searchable(expected_text),
    }


def _is_searchable(words: str) -> bool:
    """Whether it means something that no response contains these words: neither a single digit nor
    a sentence.
    """
    return len(words) >= _MIN_SEARCHED_CHARACTERS and len(words.split()) <= _MAX_SEARCHED_WORDS


def _find_response_with(
    trace: ParsedTrace, words: str, before: int
) -> tuple[str | None, str | None]:
    """The latest call before `before` whose response contains the words: its event ID and summary.

    Texts shorter than 4 characters are not searched, nor more than 500,000 characters.
    """
    if len(words) < _MIN_SEARCHED_CHARACTERS:
        return None, None
    remaining = _MAX_SEARCHED_CHARACTERS
    first = words.split()[0]
    for call in reversed(trace.calls):
        if call.response_position is None or call.position >= before or call.is_correct is not None:
            continue
        text = call.response[:remaining]
        remaining -= len(text)
        if remaining <= 0:
            break
        if first in text.casefold() and f" {words} " in f" {fold_long_text(text)} ":
            return call.event_id, call.summary
    return None, None


def _last_sentences(message: str) -> str:
    """The last two sentences: there the agent decides on its answer."""
    line = excerpt(message, 600)
    sentences = re.split(r"(?<=[.。!?])\s+(?=[A-Z\u3040-\u9fff])", line)
    return excerpt(" ".join(sentences[-2:]) if len(sentences) > 1 else line, 200)


def _unsearched_names(question: str, calls: Sequence[ToolCall]) -> tuple[str, ...]:
    """At most two names in the question whose last word occurs in no call."""
    searched_text = " \n ".join(
        fold_for_comparison(call.arguments.get("", ""))
        for call in calls[:60]
        if not is_answer_call(call)
    )
    results: list[str] = []
    for match in _PROPER_NAME.findall(question):
        name = _QUESTION_WORD.sub("", match).strip('"“” ?.,')
        key = fold_for_comparison(name)
        if (
            len(key) > 4
            and " " in key
            and key.split()[-1] not in searched_text
            and name not in results
        ):
            results.append(excerpt(name, 60))
    return tuple(results[:2])


def find_missing_outputs(trace: ParsedTrace, ground_truth: Any) -> tuple[MissingOutput, ...]:
    """Expected `outputs` that no message contains, with the latest sentence that has a number."""
    if not trace.reply_positions:
        return ()
    results: list[MissingOutput] = []
    for expected_text in missing_outputs(trace, ground_truth):
        position = next(
            (
                position
                for position in reversed(trace.reply_positions)
                if re.search(r"\d", trace.content_at(position)[:20_000])
            ),
            None,
        )
        given_text = (
            _sentence_with_number(trace.content_at(position)) if position is not None else ""
        )
        results.append(
            MissingOutput(
                excerpt(expected_text, 60),
                trace.event_ids[position] if position is not None else None,
                given_text,
            )
        )
    return tuple(results)


def _sentence_with_number(text: str) -> str:
    """The last sentence with a sum of money or a decimal, else the first with a number."""
    sentences = re.split(r"(?<=[.!?])\s+|\n|。", text[:6_000])
    sentences = [sentence for sentence in sentences if len(sentence) > 12]
    money = [
        sentence for sentence in sentences if re.search(r"[$€¥£]\s?\d|\d円|\d\.\d\d", sentence)
    ]
    if money:
        return excerpt(money[-1], 140)
    with_number = [sentence for sentence in sentences if re.search(r"\d", sentence)]
    return excerpt((with_number or [text])[0], 140)


_MAX_FAILED_ASSERTIONS = 10
_MAX_REPORT_CHARACTERS = 200_000
_FAILED_TEST_LINE = re.compile(
    r"^(?:FAIL|ERROR):\s+(?P<unit>\S+)"
    r"|^not ok\s+\d+\s*-?\s*(?P<tap>.*)$"
    r"|^[ \t]*(?:✕|✗|×|✘)\s+(?P<jest>.+)$",
    re.MULTILINE,
)
_ERROR_LINE = re.compile(
    r"^(?:E\s+)?(?P<line>(?:AssertionError|assert)\b.*|\w+(?:Error|Exception): .*)$", re.MULTILINE
)
_EXPECTED_AND_ACTUAL = re.compile(
    r"expected:?\s{0,4}(?P<want>.{1,80}?)[,;]?\s{1,4}(?:but )?(?:got|received|actual"
    r"|was):?\s{0,4}(?P<got>.{1,80})$"
    r"|(?:got:?|= )\s{0,4}(?P<has>.{1,80}?),?\s{1,4}want:?\s{0,4}(?P<wish>.{1,80})$"
    r"|assert\s{1,4}(?P<left>.{1,80}?)\s{1,4}==\s{1,4}(?P<right>.{1,80})$"
    r"|AssertionError:\s{1,4}(?P<a>.{1,60}?)\s{1,4}!=\s{1,4}(?P<b>.{1,60})$",
    re.IGNORECASE,
)


def find_failed_assertions(test_report: str | None) -> tuple[FailedAssertion, ...]:
    """At most ten failed tests, each with the line that gives the reason.

    Of a report in an unknown format it reads TAP and lines like "expected … got …".
    """
    if not test_report:
        return ()
    report = parse_test_report(test_report)
    if report.framework is not None:
        return tuple(
            _to_assertion(case.name, case.message)
            for case in report.failed_tests[:_MAX_FAILED_ASSERTIONS]
        )
    half = _MAX_REPORT_CHARACTERS // 2
    is_long = len(test_report) > _MAX_REPORT_CHARACTERS
    return _parse_unknown_report(
        test_report[:half] + test_report[-half:] if is_long else test_report
    )


def _parse_unknown_report(text: str) -> tuple[FailedAssertion, ...]:
    error_lines = [match.group("line").strip() for match in _ERROR_LINE.finditer(text)]
    results: dict[str, FailedAssertion] = {}
    for n, match in enumerate(_FAILED_TEST_LINE.finditer(text)):
        test = next((v for v in match.groupdict().values() if v), "")
        if test and test not in results and len(results) < _MAX_FAILED_ASSERTIONS:
            results[test] = _to_assertion(test, error_lines[n] if n < len(error_lines) else "")
    if not results and error_lines and re.search(r"fail|error|assert", text, re.IGNORECASE):
        results[""] = _to_assertion("", error_lines[0])
    return tuple(results.values())


def _to_assertion(test: str, message: str) -> FailedAssertion:
    match = _EXPECTED_AND_ACTUAL.search(message.strip())
    if not match:
        return FailedAssertion(excerpt(test, 120), excerpt(message))
    parts = match.groupdict()
    expected = parts["want"] or parts["right"] or parts["b"] or parts["wish"]
    actual = parts["got"] or parts["left"] or parts["a"] or parts["has"]
    return FailedAssertion(
        excerpt(test, 120),
        excerpt(message),
        excerpt(expected or "", 60) or None,
        excerpt(actual or "", 60) or None,
    )
