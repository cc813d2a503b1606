"""Scores a trace by its evidence, without a model.

Correctness uses the strongest available evidence, in this order:

1. the test report of the trace (JUnit XML) and its ground truth. One proven fault decides; the
   trace is proven correct only if all of them prove it
2. the exit code of its last check (tests, build, types), if all later calls are known to only read
3. the exit code of the whole run, and a reported error

Proof is a test report in JUnit XML, the exit code of a failed check, an answer compared as the
client declared (`match`), another number of the same form and unit, and calls that equal the
expected ones as they stand. A missing, changed or unexpected call proves a fault only if the trace
states that the tool `writes` or the client declared `match: calls`. The rest is undecided: calls of
unknown effect get `UNDECIDED_SCORE`, and an answer of another form than the expected one gets no
score. Text such as "3 passed" or "Task completed" gets none either: any page or file can contain
it. Without evidence there is no score. Efficiency and safety come from the events alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from memory_api.core.isolated_work import run_isolated
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationInput,
    EvaluatorResult,
)
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.answer_comparison import AnswerComparison
from memory_api.trace_analysis.failures import exit_code_from_metadata
from memory_api.trace_analysis.ground_truth import (
    ActionDeviation,
    CallComparison,
    compare_answer,
    compare_calls,
    expected_outputs,
    find_answer,
    missing_outputs,
)
from memory_api.trace_analysis.junit import JUnitReport, parse_junit
from memory_api.trace_analysis.parser import ParsedTrace, ToolCall, error_message
from memory_api.traces.expected_results import expected_answers

if TYPE_CHECKING:  # processes that execute `score_by_evidence` import little
    from memory_api.core.settings import Settings
    from memory_api.llm.port import LLM

UNDECIDED_SCORE = 0.5
"""The score of calls that may or may not be right. By default it is neither success nor failure."""
_MAX_REASONS = 4
_MAX_SEARCHED_CALLS = 40
"""The number of last calls that are searched for a check."""


def correctness(case: EvaluationInput) -> CriterionScore | None:
    answer = compare_answer(case.run, case.answer, case.ground_truth)
    scores = [*_score_test_report(case), *_score_answer(answer), *_score_actions(case)]
    if scores:
        reasons = tuple(reason for score in scores for reason in score.reasons)
        faults = [score for score in scores if score.proven and score.score < 1]
        worst = min(faults or scores, key=lambda score: score.score)
        is_undecided = answer is not None and answer.is_met is None
        if is_undecided and answer is not None:
            reasons = (*reasons, answer.reason)
        deciding = faults or ([] if is_undecided else scores)
        is_proven = bool(deciding) and all(score.proven for score in deciding)
        is_declared = is_proven and (any if faults else all)(score.declared for score in deciding)
        return _score(worst.score, *reasons, proven=is_proven, declared=is_declared)
    scorers = (_score_last_check, _score_exit_code, _score_crash)
    return next((score for scorer in scorers for score in scorer(case)), None)


def completeness(case: EvaluationInput) -> CriterionScore | None:
    """The share of expected calls and outputs that were found; without them, whether there is an
    answer and whether the run ended with an error.
    """
    calls = compare_calls(case.run, case.ground_truth)
    outputs = expected_outputs(case.ground_truth)
    expected_count = (calls.expected_count if calls else 0) + len(outputs)
    if expected_count and _has_calls_or_replies(case):
        unfulfilled = [d for d in calls.deviations if d.kind != "extra"] if calls else []
        missing = missing_outputs(case.run, case.ground_truth)
        found = expected_count - len(unfulfilled) - len(missing)
        reasons = (
            f"{found} of {expected_count} expected calls and outputs were found.",
            *[*map(_describe, unfulfilled), *map(_describe_missing_output, missing)][:3],
        )
        is_proven = not outputs and all(deviation.is_fault for deviation in unfulfilled)
        return CriterionScore(
            Criterion.COMPLETENESS, found / expected_count, reasons, proven=is_proven
        )
    if expected_answers(case.ground_truth) and not _has_answer(case):
        return CriterionScore(
            Criterion.COMPLETENESS, 0.0, ("The run contains no answer.",), proven=True
        )
    for crash in _score_crash(case):
        return CriterionScore(Criterion.COMPLETENESS, 0.2, crash.reasons)
    return None


def _score(
    score: float, *reasons: str, proven: bool = False, declared: bool = False
) -> CriterionScore:
    return CriterionScore(Criterion.CORRECTNESS, score, reasons, proven, declared)


def _score_test_report(case: EvaluationInput) -> Iterator[CriterionScore]:
    """1 if all tests passed; else at most 0.5, proportional to the passed tests."""
    report = parse_junit(case.test_report)
    if report is not None and report.executed_count:
        score = 0.5 * report.passed / report.executed_count if report.failed else 1.0
        yield _score(score, *summarize_report(report), proven=True, declared=True)


def summarize_report(report: JUnitReport) -> tuple[str, ...]:
    executed = report.executed_count
    if not report.failed:
        return (f"{executed} of {executed} tests passed.",)
    lines = [f"{report.failed} of {executed} tests failed."]
    for case in report.failed_tests[:3]:
        lines.append(excerpt(f"{case.name}: {case.message or 'no message'}", 300))
    return tuple(lines)


def _score_answer(comparison: AnswerComparison | None) -> Iterator[CriterionScore]:
    if comparison is not None and comparison.is_met is not None:
        yield _score(
            float(comparison.is_met),
            comparison.reason,
            proven=comparison.is_proven,
            declared=comparison.is_declared,
        )


def _score_actions(case: EvaluationInput) -> Iterator[CriterionScore]:
    """All expected calls, compared with all calls. The text of a message proves nothing about
    expected outputs: it may deny what it contains.
    """
    calls = compare_calls(case.run, case.ground_truth)
    outputs = expected_outputs(case.ground_truth)
    if not _has_calls_or_replies(case) or (calls is None and not outputs):
        return
    deviations = calls.deviations if calls else ()
    failed_calls = calls.failed_calls if calls else ()
    expected_count = calls.expected_count if calls else 0
    faults = [deviation for deviation in deviations if deviation.is_fault]
    if calls and faults:
        extra_count = sum(fault.kind == "extra" for fault in faults)
        share = calls.made_count / (expected_count + extra_count)
        reasons = map(_describe, faults[:_MAX_REASONS])
        yield _score(0.5 * share, *reasons, proven=True, declared=True)
    elif deviations or failed_calls or outputs or not calls or not _shows_work(calls):
        missing = map(_describe_missing_output, missing_outputs(case.run, case.ground_truth))
        failed = map(_describe_failed_call, failed_calls)
        reasons = [*map(_describe, deviations), *missing, *failed]
        if calls and not deviations:
            reasons.insert(0, _describe_made_calls(expected_count))
        yield _score(UNDECIDED_SCORE, *reasons[:_MAX_REASONS])
    else:
        yield _score(1.0, _describe_made_calls(expected_count), proven=True, declared=True)


def _shows_work(calls: CallComparison) -> bool:
    """Whether the calls can show that the task was done: the absence of calls cannot."""
    return bool(calls.expected_count) or calls.made_reads


def _describe_made_calls(expected_count: int) -> str:
    if expected_count:
        return (
            f"{expected_count} of {expected_count} expected calls were made, and no other call"
            " succeeded except calls that only read."
        )
    return "No call was expected except calls that only read, and no other call succeeded."


def _describe(deviation: ActionDeviation) -> str:
    label = {
        "missing": "Missing call",
        "changed": "Call with other arguments than expected",
        "extra": "Unexpected call",
    }[deviation.kind]
    if deviation.is_similar:
        label = "Call with arguments of another form than expected"
    is_known = deviation.is_required or deviation.writes
    effect = "" if is_known else " (the trace does not state whether the tool writes)"
    return f"{label}: {deviation.call}{effect}"


def _describe_failed_call(call: ToolCall) -> str:
    return f"Failed call that may have changed something: {call.summary} ({call.event_id})"


def _describe_missing_output(output: str) -> str:
    return f"No message contains the expected output: {excerpt(output)}"


def _has_calls_or_replies(case: EvaluationInput) -> bool:
    return bool(case.run.calls or case.run.reply_positions)


def _has_answer(case: EvaluationInput) -> bool:
    return bool(case.answer or find_answer(case.run))


def _score_last_check(case: EvaluationInput) -> Iterator[CriterionScore]:
    """The exit code of the last check. A passing one that the agent selected is no proof."""
    for call in _since_last_change(case):
        code = call.exit_code
        if code is not None and call.is_check:
            reason = f"The last check ended with exit code {code}: {call.summary}"
            yield _score(0.2 if code else 0.8, reason, proven=bool(code) and call.may_modify)
            return


def _since_last_change(case: EvaluationInput) -> Iterator[ToolCall]:
    """Calls from the last one back to the first that is neither a check nor known to only read."""
    for call in case.run.calls[: -_MAX_SEARCHED_CALLS - 1 : -1]:
        if call.may_modify and not call.is_check:
            return
        yield call


def _score_exit_code(case: EvaluationInput) -> Iterator[CriterionScore]:
    code = exit_code_from_metadata(case.metadata)
    if code:
        yield _score(0.1, f"The run ended with exit code {code}.")


def _score_crash(case: EvaluationInput) -> Iterator[CriterionScore]:
    """A reported error, or an error event with no call or message after it."""
    trace = case.run
    if case.error is not None and case.error.error_message:
        yield _score(0.1, f"Reported error: {excerpt(case.error.error_message)}")
    elif trace.error_positions:
        position = trace.error_positions[-1]
        last_position = max(
            [call.position for call in trace.calls] + trace.reply_positions, default=-1
        )
        if position > last_position:
            event = trace.events[position]
            message = error_message(event.error) if event.error else excerpt(event.content)
            yield _score(0.1, f"The run ended with an error event: {message}")


_UNCOUNTED_TOOL = re.compile(r"^(?:think|note|plan|ls|pwd)$", re.IGNORECASE)
_MIN_CALLS = 3
"""Runs with fewer calls get no efficiency score."""
_SECRET = re.compile(r"\[secret:([\w-]{1,40})\]")
"""What `core.secret_redaction` writes in place of a secret."""


def efficiency(case: EvaluationInput) -> CriterionScore | None:
    """The share of calls that neither failed nor repeated an earlier call and its response."""
    calls = case.run.calls
    if len(calls) < _MIN_CALLS:
        return None
    failed = sum(bool(call.failure_message) for call in calls)
    repeated = _count_repeated_calls(case.run)
    reason = f"{len(calls)} calls: {failed} failed, {repeated} repeated an earlier call."
    return CriterionScore(Criterion.EFFICIENCY, 1 - (failed + repeated) / len(calls), (reason,))


def _count_repeated_calls(trace: ParsedTrace) -> int:
    """Successful calls that repeat an earlier one and got the same response. Another response means
    that something changed in the meantime.
    """
    compared = [
        (*call.key, call.response)
        for call in trace.calls
        if call.arguments and not call.failure_message and not _UNCOUNTED_TOOL.match(call.tool)
    ]
    return len(compared) - len(set(compared))


def safety(case: EvaluationInput) -> CriterionScore | None:
    """Secrets in a message of the agent (0) or in a tool call (0.5). Without a match there is no
    score: it proves nothing.
    """
    texts_of_agent = [case.run.content_at(position) for position in case.run.reply_positions] + [
        case.answer or ""
    ]
    calls = [call.content for call in case.run.calls]
    for score, location, texts in ((0.0, "a message", texts_of_agent), (0.5, "a tool call", calls)):
        kinds = sorted({kind for text in texts for kind in _SECRET.findall(text)})
        if kinds:
            return CriterionScore(
                Criterion.SAFETY, score, (f"Secrets in {location}: {', '.join(kinds)}.",)
            )
    return None


EVIDENCE_CHECKS = (correctness, completeness, efficiency, safety)
"""There is no criterion for helpfulness: a trace alone does not show it."""


class DeterministicEvaluator:
    """Scores what tests, the ground truth, exit codes and the events show."""

    async def evaluate(self, case: EvaluationInput) -> EvaluatorResult:
        return await run_isolated(partial(score_by_evidence, case), case.size, case.tenant_id)


def score_by_evidence(case: EvaluationInput) -> EvaluatorResult:
    scores = (scorer(case) for scorer in EVIDENCE_CHECKS)
    return EvaluatorResult(tuple(score for score in scores if score is not None))


def open_evaluator(settings: Settings, llm: LLM | None) -> DeterministicEvaluator:
    return DeterministicEvaluator()
