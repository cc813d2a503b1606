"""Decides whether a run is reflected on, and how important the reflection is.

`auto` reflects on failure, error, timeout and partial; on a success in full mode, after a failed
attempt at the task; and on a conflict, where a check that the client declared contradicts the
outcome that it reported. Then the result of the check counts; nothing else overrides a client. An
outcome that was not reported is the verdict of the evaluation, else partial.

A routine success teaches nothing: earlier successes of the playbook called the same tools in the
same order, and no call failed. `auto` reflects on a small share of them, drawn by the trace ID.

Importance, 0 to 1, is the sum of

    outcome            error, failure .7; timeout .6; partial .5; success .3
    .15                a declared check contradicts the reported outcome
    .10                a declared check decides the outcome
    .15                a success after a failed attempt
    .10 × (1 − efficiency)
    .20 × (1 − safety)

A missing score adds nothing. Neither do a model's scores: the model reads the text of the trace,
whose author must not control its importance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal
from uuid import UUID

from memory_api.evaluation.schemas import (
    MAX_REASON_LENGTH,
    MAX_REASONS,
    Criterion,
    EvaluationResults,
    ReflectionDecision,
    best_score,
)
from memory_api.text.excerpts import excerpt
from memory_api.trace_analysis.failures import detect_failure
from memory_api.traces.schemas import Event, EventType, OutcomeConflict, OutcomeType, ReflectMode

BASE_IMPORTANCE = {
    OutcomeType.ERROR: 0.7,
    OutcomeType.FAILURE: 0.7,
    OutcomeType.TIMEOUT: 0.6,
    OutcomeType.PARTIAL: 0.5,
    OutcomeType.SUCCESS: 0.3,
}
CONFLICT_WEIGHT = 0.15
CHECK_WEIGHT = 0.1
RECOVERY_WEIGHT = 0.15
INEFFICIENCY_WEIGHT = 0.1
UNSAFETY_WEIGHT = 0.2


MIN_EARLIER_SUCCESSES = 3
"""Earlier successes with the same calls that make a further one routine."""


def call_sequence(events: Sequence[Event]) -> bytes | None:
    """A hash of the names of the called tools in order, repetitions in a row counted once. None if
    a call failed or an error occurred: then the run had something to recover from.
    """
    if any(e.event_type is EventType.ERROR_EVENT or detect_failure(e) for e in events):
        return None
    calls = [e.tool_name or "" for e in events if e.event_type is EventType.TOOL_CALL]
    names = "\0".join(name for name, _ in groupby(calls))
    return hashlib.sha256(names.encode()).digest()[:16]


@dataclass(frozen=True)
class Routine:
    """What makes a success routine: the number of earlier successes of the playbook with the same
    calls. `share` of the routine successes, 0 to 1, are reflected on.
    """

    trace_id: UUID
    earlier_successes: int
    share: float

    @property
    def is_skipped(self) -> bool:
        if self.earlier_successes < MIN_EARLIER_SUCCESSES:
            return False
        digest = hashlib.sha256(b"routine" + self.trace_id.bytes).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 >= self.share


def decide_reflection(
    evaluation: EvaluationResults,
    outcome: OutcomeType | None,
    *,
    asked: ReflectMode,
    mode: Literal["lite", "full"],
    earlier_failed: bool,
    routine: Routine | None = None,
) -> ReflectionDecision:
    """`earlier_failed`: an earlier attempt at the task did not succeed. `routine` is None if every
    success is reflected on.
    """
    if asked == "never":
        return ReflectionDecision(False, None, "Reflection is turned off for this trace.")
    effective = effective_outcome(evaluation, outcome)
    conflict = find_conflict(evaluation, outcome)
    reason = _reason(effective, asked, mode, conflict, earlier_failed)
    is_asked_for = asked == "always" or earlier_failed or conflict is not None
    is_plain = effective is OutcomeType.SUCCESS and not is_asked_for
    if is_plain and reason is not None and routine is not None and routine.is_skipped:
        return ReflectionDecision(
            False,
            None,
            "Routine success: earlier successes of the playbook made the same calls.",
        )
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
        + CONFLICT_WEIGHT * (conflict is not None)
        + CHECK_WEIGHT * evaluation.declared
        + RECOVERY_WEIGHT * recovered
        + INEFFICIENCY_WEIGHT * _missing_share(evaluation, Criterion.EFFICIENCY)
        + UNSAFETY_WEIGHT * _missing_share(evaluation, Criterion.SAFETY)
    )
    return ReflectionDecision(True, round(min(1.0, importance), 3), reason)


def find_conflict(
    evaluation: EvaluationResults, outcome: OutcomeType | None
) -> OutcomeConflict | None:
    """The contradiction between a reported success or failure and a check that the client declared.
    Partial, error and timeout are no statement about the check.
    """
    check = evaluation.declared_outcome
    if outcome is None or check is None:
        return None
    if {outcome, check} != {OutcomeType.SUCCESS, OutcomeType.FAILURE}:
        return None
    score = evaluation.best(Criterion.CORRECTNESS)
    reasons = [excerpt(reason, MAX_REASON_LENGTH) for reason in score.reasons] if score else []
    return OutcomeConflict(reported=outcome, check=check, reasons=reasons[:MAX_REASONS])


def effective_outcome(evaluation: EvaluationResults, outcome: OutcomeType | None) -> OutcomeType:
    """The result of a declared check that contradicts the reported outcome, else the reported
    outcome, else the verdict of the evaluation.
    """
    conflict = find_conflict(evaluation, outcome)
    if conflict is not None:
        return conflict.check
    return outcome or evaluation.verdict or OutcomeType.PARTIAL


def _reason(
    effective: OutcomeType,
    asked: ReflectMode,
    mode: str,
    conflict: OutcomeConflict | None,
    earlier_failed: bool,
) -> str | None:
    if conflict is not None:
        return f"A declared check contradicts the reported {conflict.reported}."
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
