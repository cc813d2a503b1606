"""Is a run worth a reflection, and how much is to be learnt from it?

`auto` reflects on failure, error, timeout and partial always; on a success in full mode, after a
failed attempt of the task, or when tests or the right answer contradict it: then it counts as a
failure. An outcome nobody told is the evaluation's verdict, else partial.

Importance, 0 to 1, is the sum of

    what happened      error, failure .7; timeout .6; partial .5; success .3
    .15                a reported success that was none: somebody believed it
    .10                tests or the right answer prove what happened: a lesson can be checked
    .15                a success after a failed attempt: the difference is the lesson
    .10 × (1 − efficiency)
    .20 × (1 − safety)

A score that is missing adds nothing. A model's scores add nothing either: they are written in the
words of the trace, whose author must not set how important it is.
"""

from __future__ import annotations

from typing import Literal

from apps.memory_api.evaluation.schemas import (
    Criterion,
    Decision,
    TraceEvaluation,
    strongest,
)
from apps.memory_api.traces.schemas import OutcomeType, Reflect

BASE = {
    OutcomeType.ERROR: 0.7,
    OutcomeType.FAILURE: 0.7,
    OutcomeType.TIMEOUT: 0.6,
    OutcomeType.PARTIAL: 0.5,
    OutcomeType.SUCCESS: 0.3,
}
CONTRADICTED, PROVEN, RECOVERED, WASTE, HARM = 0.15, 0.1, 0.15, 0.1, 0.2


def decide(
    evaluation: TraceEvaluation,
    outcome: OutcomeType | None,
    *,
    asked: Reflect,
    mode: Literal["lite", "full"],
    earlier_failed: bool,
) -> Decision:
    """`earlier_failed`: an attempt of the task before this one did not succeed."""
    if asked == "never":
        return Decision(False, None, "nobody asked for a reflection")
    real = real_outcome(evaluation, outcome)
    contradicted = outcome is OutcomeType.SUCCESS and real is not OutcomeType.SUCCESS
    reason = _reason(real, asked, mode, contradicted, earlier_failed)
    if reason is None:
        return Decision(False, None, "a success like any other, in lite mode")
    recovered = real is OutcomeType.SUCCESS and earlier_failed
    importance = (
        BASE[real]
        + CONTRADICTED * contradicted
        + PROVEN * evaluation.proven
        + RECOVERED * recovered
        + WASTE * _lack(evaluation, Criterion.EFFICIENCY)
        + HARM * _lack(evaluation, Criterion.SAFETY)
    )
    return Decision(True, round(min(1.0, importance), 3), reason)


def real_outcome(evaluation: TraceEvaluation, outcome: OutcomeType | None) -> OutcomeType:
    """What happened, by proof before by report: a success that is proven to be none is a failure.
    Other outcomes stand: who reports a failure knows more than the tests.
    """
    if outcome is None:
        return evaluation.verdict or OutcomeType.PARTIAL
    disproved = evaluation.proven and evaluation.verdict is not OutcomeType.SUCCESS
    if outcome is OutcomeType.SUCCESS and disproved:
        return OutcomeType.FAILURE
    return outcome


def _reason(
    real: OutcomeType, asked: Reflect, mode: str, contradicted: bool, earlier_failed: bool
) -> str | None:
    if contradicted:
        return "reported as a success, and the evidence says otherwise"
    if real is not OutcomeType.SUCCESS:
        return f"the outcome is {real.value}"
    if earlier_failed:
        return "a success after a failed attempt"
    if asked == "always":
        return "a reflection was asked for"
    return "successes are reflected on in full mode" if mode == "full" else None


def _lack(evaluation: TraceEvaluation, criterion: Criterion) -> float:
    """How much is missing from 1, by those who go by evidence."""
    exact = (found for found in evaluation.found.values() if found.prompt_hash is None)
    score = strongest((score for found in exact for score in found.scores), criterion)
    return 1 - score.score if score else 0.0
