"""Facts about what the client declared: the right answer, the right calls, outputs and tests; and
what the run shows of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.calls import MAX_PER_KIND
from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.trace_analysis.ground_truth import (
    ActionDeviation,
    compare_answer,
    compare_calls,
    expected_outputs,
    find_answer,
    missing_outputs,
)
from memory_api.trace_analysis.junit import parse_junit
from memory_api.trace_analysis.parser import ParsedTrace
from memory_api.traces.expected_results import expected_answers

MAX_ANSWER_LENGTH = 200
"""Characters of an answer that are quoted."""
MAX_REPORT_LENGTH = 300
"""Characters of a textual test report that are quoted."""


def find_expectations(
    trace: ParsedTrace, ground_truth: Any, stated_answer: str | None = None
) -> Iterator[Fact]:
    """Answer, calls and outputs of the ground truth; nothing without any. `stated_answer` is what
    the client sent as the answer.
    """
    if ground_truth is None:
        return
    yield from _answer(trace, ground_truth, stated_answer)
    yield from _calls(trace, ground_truth)
    missing = missing_outputs(trace, ground_truth)
    for output in expected_outputs(ground_truth)[:MAX_PER_KIND]:
        met = output not in missing
        if trace.reply_positions:
            yield _expectation("output", None if met else False, expected=excerpt(output, 120))


def _expectation(what: str, met: bool | None, *event_ids: str | None, **values: Any) -> Fact:
    ids = tuple(event_id for event_id in event_ids if event_id)
    return Fact(FactKind.EXPECTATION, ids, {"what": what, "met": met, **values})


def _answer(trace: ParsedTrace, ground_truth: Any, stated_answer: str | None) -> Iterator[Fact]:
    expected = next(iter(expected_answers(ground_truth)), None)
    if expected is None:
        return
    shown = excerpt(expected, MAX_ANSWER_LENGTH)
    found = None if stated_answer else find_answer(trace)
    answer = stated_answer or (found[1] if found else None)
    comparison = compare_answer(trace, answer, ground_truth) if answer is not None else None
    if answer is None or comparison is None:
        yield _expectation("answer", False, expected=shown, given=None, relation="missing")
        return
    yield _expectation(
        *("answer", comparison.is_met, trace.event_ids[found[0]] if found else None),
        expected=shown,
        given=excerpt(answer, MAX_ANSWER_LENGTH),
        relation=comparison.relation,
    )


def _calls(trace: ParsedTrace, ground_truth: Any) -> Iterator[Fact]:
    """Expected calls that were not made, and unexpected calls that changed something."""
    comparison = compare_calls(trace, ground_truth)
    if comparison is None or not (trace.calls or trace.reply_positions):
        return
    if 0 < comparison.expected_count == comparison.made_count:
        yield _expectation("calls", True, count=comparison.expected_count)
    stated = [
        deviation
        for deviation in comparison.deviations
        if not deviation.is_similar and (deviation.kind != "extra" or deviation.is_fault)
    ]
    yield from map(_deviation, stated[:MAX_PER_KIND])


def _deviation(item: ActionDeviation) -> Fact:
    return _expectation(
        *("call", False, item.event_id),
        deviation=item.kind,
        tool=item.tool,
        call=item.call,
        changes=[asdict(change) for change in item.changes[:MAX_PER_KIND]],
    )


def find_test_report(test_report: str | None) -> Iterator[Fact]:
    """The failed tests of a report in JUnit XML; another report as a quotation of its end."""
    report = parse_junit(test_report)
    if report is None:
        text = " ".join((test_report or "").split())
        if text:
            end = text if len(text) <= MAX_REPORT_LENGTH else f"…{text[-MAX_REPORT_LENGTH:]}"
            yield Fact(FactKind.QUOTATION, (), {"of": "test_report", "text": end})
        return
    if not report.failed:
        return
    counts = {"failed": report.failed, "executed": report.executed_count}
    for case in report.failed_tests[:MAX_PER_KIND]:
        values = {"name": excerpt(case.name, 120), "message": excerpt(case.message, 200)}
        yield Fact(FactKind.TEST, (), {**values, **counts})
