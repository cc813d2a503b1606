"""Decides whether a run is reflected on, and how important the reflection is.

`auto` reflects on failure, error, timeout and partial; on a success in full mode, after a failed
attempt at the task, or if tests or the ground truth contradict it (it then counts as a failure). An
outcome that was not reported is the verdict of the evaluation, else partial.

Importance, 0 to 1, is the sum of

    outcome            error, failure .7; timeout .6; partial .5; success .3
    .15                the evidence contradicts a reported success
    .10                tests or the ground truth prove the outcome
    .15                a success after a failed attempt
    .10 × (1 − efficiency)
    .20 × (1 − safety)

A missing score adds nothing. Neither do a model's scores: the model reads the text of the trace,
whose author must not control its importance.
"""

from __future__ import annotations

from typing import Literal

from memory_api.evaluation.schemas import (
    Criterion,
    EvaluationResults,
    ReflectionDecision,
    best_score,
)
from memory_api.traces.schemas import OutcomeType, ReflectMode

BASE_IMPORTANCE = {
    OutcomeType.ERROR: 0.7,
    OutcomeType.FAILURE: 0.7,
    OutcomeType.TIMEOUT: 0.6,
    OutcomeType.PARTIAL: 0.5,
    OutcomeType.SUCCESS: 0.3,
}
CONTRADICTION_WEIGHT = 0.15
PROOF_WEIGHT = 0.1
RECOVERY_WEIGHT = 0.15
INEFFICIENCY_WEIGHT = 0.1
UNSAFETY_WEIGHT = 0.2


def decide_reflection(
    evaluation: EvaluationResults,
    outcome: OutcomeType | None,
    *,
    asked: ReflectMode,
    mode: Literal["lite", "full"],
    earlier_failed: bool,
) -> ReflectionDecision:
    """`earlier_failed`: an earlier attempt at the task did not succeed."""
    if asked == "never":
        return ReflectionDecision(False, None, "Reflection is turned off for this trace.")
    effective = effective_outcome(evaluation, outcome)
    contradicted = outcome is OutcomeType.SUCCESS and effective is not OutcomeType.SUCCESS
    reason = _reason(effective, asked, mode, contradicted, earlier_failed)
    if outcome is None and evaluation.verdict is None:
        reason = "The outcome is unknown."
        if asked != "always":
            return ReflectionDecision(False, None, reason)
    if reason is None:
        return ReflectionDecision(
            False,
            None,
            "Success without a failed attempt before it; lite mode does not reflect on it.",
        )
    recovered = effective is OutcomeType.SUCCESS and earlier_failed
    importance = (
        BASE_IMPORTANCE[effective]
        + CONTRADICTION_WEIGHT * contradicted
        + PROOF_WEIGHT * evaluation.proven
        + RECOVERY_WEIGHT * recovered
        + INEFFICIENCY_WEIGHT * _missing_share(evaluation, Criterion.EFFICIENCY)
        + UNSAFETY_WEIGHT * _missing_share(evaluation, Criterion.SAFETY)
    )
    return ReflectionDecision(True, round(min(1.0, importance), 3), reason)


def effective_outcome(evaluation: EvaluationResults, outcome: OutcomeType | None) -> OutcomeType:
    """The effective outcome: a reported success that the evidence disproves is a failure. Other
    reported outcomes are kept.
    """
    if outcome is None:
        return evaluation.verdict or OutcomeType.PARTIAL
    disproved = evaluation.proven and evaluation.verdict is not OutcomeType.SUCCESS
    if outcome is OutcomeType.SUCCESS and disproved:
        return OutcomeType.FAILURE
    return outcome


def _reason(
    effective: OutcomeType, asked: ReflectMode, mode: str, contradicted: bool, earlier_failed: bool
) -> str | None:
    if contradicted:
        return "The evidence contradicts the reported success."
    if effective is not OutcomeType.SUCCESS:
        return f"The outcome is {effective.value}."
    if earlier_failed:
        return "Success after a failed attempt at the same task."
    if asked == "always":
        return "The request asks for a reflection."
    return "Full mode reflects on every success." if mode == "full" else None


def _missing_share(evaluation: EvaluationResults, criterion: Criterion) -> float:
    """1 minus the score of a criterion, without scores of models; 0 if there is none."""
    deterministic = (result for result in evaluation.found.values() if result.prompt_hash is None)
    score = best_score((score for result in deterministic for score in result.scores), criterion)
    return 1 - score.score if score else 0.0
