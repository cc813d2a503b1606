"""Importance and confidence of a reflection, calculated from counted facts.

Importance = base(outcome) + sum of weight * n / (n + half) over the kinds of facts in `WEIGHTS`, at
most 1. It estimates how much this knowledge helps the next run.

Confidence = 1 - .72 * product of (1 - strength) ** (n / (n + half)), at most .97. Statements of the
environment and of the client have the most strength, observations in text the least.

Neither falls when a count rises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from memory_api.trace_analysis.facts import Fact, FactKind
from memory_api.traces.schemas import OutcomeType

BASE_IMPORTANCE = {
    OutcomeType.ERROR: 0.56,
    OutcomeType.FAILURE: 0.55,
    OutcomeType.TIMEOUT: 0.54,
    OutcomeType.PARTIAL: 0.45,
    OutcomeType.SUCCESS: 0.28,
}

# (weight in importance, strength in confidence, count at which half of each is reached)
WEIGHTS: dict[FactKind, tuple[float, float, float]] = {
    FactKind.EXPECTATION: (0.16, 0.60, 1.0),
    FactKind.TEST: (0.14, 0.60, 1.0),
    FactKind.ERROR: (0.12, 0.40, 0.5),
    FactKind.FAILED_CALL: (0.12, 0.35, 3.0),
    FactKind.REPEATED_CALL: (0.08, 0.25, 2.0),
    FactKind.CORRECTED_CALL: (0.20, 0.50, 1.0),
    FactKind.RETRIED_CALL: (0.08, 0.25, 1.0),
    FactKind.DIFFERENCE: (0.18, 0.40, 1.0),
    FactKind.USER_RULE: (0.20, 0.30, 1.0),
    FactKind.COUNTS: (0.06, 0.15, 12.0),
}


def _count(fact: Fact) -> int:
    """What a fact counts for: the calls it is about, else 1. An expectation that was met says
    nothing about the cause of an outcome.
    """
    if fact.kind is FactKind.COUNTS:
        return int(fact.values["calls"])
    if fact.kind is FactKind.EXPECTATION:
        return int(not fact.values["met"])
    is_of_calls = fact.kind in (FactKind.FAILED_CALL, FactKind.REPEATED_CALL)
    return int(fact.values["count"]) if is_of_calls else 1


def _counts(facts: Iterable[Fact]) -> Counter[FactKind]:
    counts = Counter[FactKind]()
    for fact in facts:
        counts[fact.kind] += _count(fact)
    return counts


def calculate_importance(outcome: OutcomeType, facts: Iterable[Fact]) -> float:
    """0 to 1; for the formula see the module docstring."""
    counts = _counts(facts)
    gain = sum(w * _saturation(counts[kind], half) for kind, (w, _, half) in WEIGHTS.items())
    return round(min(1.0, BASE_IMPORTANCE[outcome] + gain), 3)


def calculate_confidence(facts: Iterable[Fact]) -> float:
    """0 to 0.97; for the formula see the module docstring."""
    counts = _counts(facts)
    doubt = 0.72
    for kind, (_, strength, half) in WEIGHTS.items():
        doubt *= (1 - strength) ** _saturation(counts[kind], half)
    return round(min(0.97, 1 - doubt), 3)


def _saturation(count: int, half: float) -> float:
    return count / (count + half)
