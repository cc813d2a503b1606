"""Is the result right? By the strongest evidence that there is, in this order:

  1. the test report of the trace, and what its ground truth asks for; of several, the worst. Where
     the environment judged the answer, that stands in place of our comparing words
  2. the last tests that the run itself ran, unless it changed something after them
  3. the exit code of its last check (tests, build, types), likewise
  4. the exit code of the whole run, and a run that broke off

Tests, the environment's verdict, expected calls and an answer that is or is not the right one prove
it; an answer with more or fewer words does not. Nothing of all these: no score.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from apps.memory_api.evaluation.actions import (
    Departure,
    changing,
    expected_actions,
    find_departures,
)
from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.evidence import parse_test_report
from apps.memory_api.evaluation.exits import alters, exit_in, exit_of, is_check
from apps.memory_api.evaluation.schemas import Criterion, Score, TestReport
from apps.memory_api.evaluation.truth import (
    answering,
    compare_answer,
    expected_outputs,
    right_answers,
    untold,
)
from apps.memory_api.traces.quotes import cut
from apps.memory_api.traces.steps import Step, message_of

_HAND_OVER = re.compile(
    r"(?:transfer|hand|forward)\w*_?to_(?:a_)?(?:human|person|agent|operator|staff)|hand_?over|escalate",
    re.IGNORECASE,
)
_DEPARTURES = 1_000
_LOOKED_AT = 40
"""The last calls whose output is searched for tests."""
_OUTPUT = 200_000


def correctness(case: Case) -> Score | None:
    stated = [*_tests(case), *_answer(case), *_actions(case)]
    if stated:
        proven = [score for score in stated if score.proven]
        worst = min(proven or stated, key=lambda score: score.score)
        reasons = tuple(reason for score in stated for reason in score.reasons)
        return _score(worst.score, *reasons, proven=worst.proven)
    looks = (_own_tests, _check, _exit, _crash)
    return next((score for look in looks for score in look(case)), None)


def completeness(case: Case) -> Score | None:
    """How much of what was asked for was done: expected calls and outputs, an answer at all; a run
    that broke off did not finish.
    """
    wanted, missed = _asked(case)
    if wanted:
        reasons = (f"{wanted - len(missed)} of {wanted} expected things were done", *missed[:3])
        share = (wanted - len(missed)) / wanted
        return Score(Criterion.COMPLETENESS, share, reasons, proven=True)
    if right_answers(case.ground_truth) and not _answered(case):
        return Score(Criterion.COMPLETENESS, 0.0, ("the run gave no answer",), proven=True)
    for crash in _crash(case):
        return Score(Criterion.COMPLETENESS, 0.2, crash.reasons)
    return None


def _score(score: float, *reasons: str, proven: bool = False) -> Score:
    return Score(Criterion.CORRECTNESS, score, reasons, proven)


def _tests(case: Case) -> Iterator[Score]:
    if case.test_report:
        report = parse_test_report(case.test_report)
        if report.ran:
            yield _score(_passed(report), *told(report), proven=True)


def _passed(report: TestReport) -> float:
    """1 when all passed; else at most .5, by how many did: a failing test is never nearly right."""
    return 0.5 * report.passed / report.ran if report.bad else 1.0


def told(report: TestReport) -> tuple[str, ...]:
    """A report in at most four lines."""
    if not report.bad:
        return (f"{report.framework}: all {report.ran} tests passed",)
    lines = [f"{report.framework}: {report.bad} of {report.ran} tests failed"]
    for case in report.failing[:3]:
        where = f" ({case.file}:{case.line})" if case.file and case.line else ""
        lines.append(cut(f"{case.name}{where}: {case.message or 'no message'}", 300))
    return tuple(lines)


def _answer(case: Case) -> Iterator[Score]:
    step = answering(case.run.steps)
    if step is not None and step.verdict is not None:
        said = "was accepted" if step.verdict else "was rejected"
        yield _score(float(step.verdict), f"the answer {said}: {cut(step.response)}", proven=True)
        return
    found = compare_answer(case.run, case.answer, case.ground_truth)
    if found is not None and found.score is not None:
        plain = found.relation in ("same", "different")
        yield _score(found.score, found.reason, proven=plain)


def _actions(case: Case) -> Iterator[Score]:
    """Expected calls and outputs: right when all were done and nothing else was changed."""
    wanted, missed = _asked(case)
    if not _did_anything(case) or (expected_actions(case.ground_truth) is None and not wanted):
        return
    extra = [f"not expected: {d.call}" for d in _departures(case) if d.kind == "extra"]
    if not (missed or extra):
        reason = (
            f"all {wanted} expected things were done" if wanted else "nothing was to be changed"
        )
        yield _score(1.0, f"{reason}, and nothing else was", proven=True)
    else:
        share = (wanted - len(missed)) / (wanted + len(extra))
        yield _score(0.5 * share, *(missed + extra)[:4], proven=True)


def _asked(case: Case) -> tuple[int, list[str]]:
    """How many calls and outputs were expected, and which of them are missing or differ."""
    if not _did_anything(case):
        return 0, []
    expected = changing(expected_actions(case.ground_truth) or [])
    actions = [action for action in expected if not _HAND_OVER.search(action[0])]
    outputs = expected_outputs(case.ground_truth)
    missed = [f"{d.kind}: {d.call}" for d in _departures(case) if d.kind != "extra"]
    missed += [f"not told: {output}" for output in untold(case.run, case.ground_truth)]
    return len(actions) + len(outputs), missed


def _departures(case: Case) -> list[Departure]:
    """Handing the user over to a person changes nothing, and is told in other words each time."""
    found = find_departures(case.run, case.ground_truth, most=_DEPARTURES)
    return [departure for departure in found if not _HAND_OVER.search(departure.tool)]


def _did_anything(case: Case) -> bool:
    return bool(case.run.steps or case.run.said)


def _answered(case: Case) -> bool:
    return bool(case.answer or answering(case.run.steps) or case.run.said)


def _own_tests(case: Case) -> Iterator[Score]:
    """The last report of the run. Passing tests of its own choice are a good sign and no proof."""
    for step in _since_last_change(case):
        report = parse_test_report(step.response[-_OUTPUT:])
        if report.ran:
            score = _passed(report) if report.bad else 0.9
            reasons = (f"the last tests it ran ({step.event})", *told(report))
            yield _score(score, *reasons, proven=bool(report.bad))
            return


def _check(case: Case) -> Iterator[Score]:
    for step in _since_last_change(case):
        code = exit_of(case.run, step)
        if code is not None and is_check(step):
            reason = f"its last check ended with exit code {code}: {step.call}"
            yield _score(0.2 if code else 0.8, reason)
            return


def _since_last_change(case: Case) -> Iterator[Step]:
    """Calls from the last one back to the last that changed something."""
    for step in case.run.steps[: -_LOOKED_AT - 1 : -1]:
        if alters(step) and not is_check(step):
            return
        yield step


def _exit(case: Case) -> Iterator[Score]:
    code = exit_in(case.metadata)
    if code:
        yield _score(0.1, f"the run ended with exit code {code}")


def _crash(case: Case) -> Iterator[Score]:
    """A stated error, or an error event with no call or message after it."""
    run = case.run
    if case.error is not None and case.error.error_message:
        yield _score(0.1, f"stated error: {cut(case.error.error_message)}")
    elif run.crashes:
        at = run.crashes[-1]
        last = max([step.at for step in run.steps] + run.said, default=-1)
        if at > last:
            event = run.events[at]
            message = message_of(event.error) if event.error else cut(event.content)
            yield _score(0.1, f"the run broke off: {message}")
