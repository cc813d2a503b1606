"""Importance and confidence of a reflection, calculated from counted evidence.

Importance = base(outcome) + sum of weight * n / (n + half) over the kinds of evidence in
`EVIDENCE_WEIGHTS`, at most 1. It estimates how much this knowledge helps the next run.

Confidence = 1 - .72 * product of (1 - strength) ** (n / (n + half)), at most .97. Statements of the
environment and the ground truth have the most strength, observations in text the least.

Neither falls when a count rises.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory_api.trace_analysis.findings import Findings, has_wrong_answer
from memory_api.traces.schemas import OutcomeType

BASE_IMPORTANCE = {
    OutcomeType.ERROR: 0.56,
    OutcomeType.FAILURE: 0.55,
    OutcomeType.TIMEOUT: 0.54,
    OutcomeType.PARTIAL: 0.45,
    OutcomeType.SUCCESS: 0.28,
}


@dataclass(frozen=True, slots=True)
class EvidenceCounts:
    """The number of findings of each kind."""

    answer_checks: int = 0
    action_deviations: int = 0
    failed_assertions: int = 0
    crashes: int = 0
    failed_calls: int = 0
    repetitions: int = 0
    repaired_calls: int = 0
    contrasts: int = 0
    refusals: int = 0
    value_sources: int = 0
    calls: int = 0


# (weight in importance, strength in confidence, count at which half of each is reached)
EVIDENCE_WEIGHTS: dict[str, tuple[float, float, float]] = {
    "answer_checks": (0.07, 0.45, 0.5),
    "action_deviations": (0.16, 0.60, 1.0),
    "failed_assertions": (0.14, 0.60, 1.0),
    "crashes": (0.12, 0.40, 0.5),
    "failed_calls": (0.12, 0.35, 3.0),
    "repetitions": (0.08, 0.25, 2.0),
    "repaired_calls": (0.20, 0.50, 1.0),
    "contrasts": (0.18, 0.40, 1.0),
    "refusals": (0.05, 0.12, 2.0),
    "value_sources": (0.05, 0.30, 1.0),
    "calls": (0.06, 0.15, 12.0),
}


def count_evidence(findings: Findings) -> EvidenceCounts:
    answer = findings.final_answer
    seen_answers = (
        0
        if answer is None
        else sum(
            x is not None for x in (answer.expected_answer_event_id, answer.given_answer_event_id)
        )
    )
    return EvidenceCounts(
        answer_checks=int(
            answer is not None and (answer.is_correct is not None or has_wrong_answer(findings))
        )
        + (len(findings.dialogue.ratings) if findings.dialogue else 0),
        action_deviations=len(findings.action_deviations) + len(findings.missing_outputs),
        failed_assertions=len(findings.failed_assertions),
        crashes=int(findings.crash is not None),
        failed_calls=findings.failed_call_count,
        repetitions=(findings.repeated_attempt.earlier_count if findings.repeated_attempt else 0)
        + sum(r.count for r in findings.repeated_calls)
        + sum(s.count for s in findings.failure_streaks),
        repaired_calls=len([r for r in findings.repaired_calls if r.argument_changes]),
        contrasts=findings.attempt_contrast.other_attempt_count if findings.attempt_contrast else 0,
        refusals=len(findings.refusals) + len(findings.unconfirmed_changes),
        value_sources=seen_answers
        + len(findings.lookup_hops)
        + (
            1
            if findings.argument_origin
            and (findings.argument_origin.from_tools or findings.argument_origin.reused_arguments)
            else 0
        ),
        calls=findings.call_count + (findings.dialogue.reply_count if findings.dialogue else 0),
    )


def calculate_importance(outcome: OutcomeType, evidence: EvidenceCounts) -> float:
    """0 to 1; for the formula see the module docstring."""
    gain = sum(
        weight * _saturation(getattr(evidence, name), half_count)
        for name, (weight, _, half_count) in EVIDENCE_WEIGHTS.items()
    )
    return round(min(1.0, BASE_IMPORTANCE[outcome] + gain), 3)


def calculate_confidence(evidence: EvidenceCounts) -> float:
    """0 to 0.97; for the formula see the module docstring."""
    doubt = 0.72
    for name, (_, strength, half_count) in EVIDENCE_WEIGHTS.items():
        doubt *= (1 - strength) ** _saturation(getattr(evidence, name), half_count)
    return round(min(0.97, 1 - doubt), 3)


def _saturation(count: int, half_count: float) -> float:
    return count / (count + half_count)
