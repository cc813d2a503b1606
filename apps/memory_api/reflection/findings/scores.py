"""Importance and confidence of a reflection, as formulas over counted evidence.

Importance = base(outcome) + sum of weight * n / (n + half) over the kinds of evidence below, at
most 1:
  base: error .56, failure .55, timeout .54, partial .45, success .28
It says how much would be gained by knowing this before the next run.

Confidence = 1 - .72 * product of (1 - strength) ** (n / (n + half)), at most .97: what the
environment or the ground truth stated counts most, what was read out of words least. Both never
fall when a count rises (property-tested)."""

from __future__ import annotations

from dataclasses import dataclass

from apps.memory_api.reflection.findings.compose import wrong
from apps.memory_api.reflection.findings.schemas import Findings
from apps.memory_api.traces.schemas import OutcomeType

BASE = {
    OutcomeType.ERROR: 0.56,
    OutcomeType.FAILURE: 0.55,
    OutcomeType.TIMEOUT: 0.54,
    OutcomeType.PARTIAL: 0.45,
    OutcomeType.SUCCESS: 0.28,
}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Counts of what was found; every one is >= 0."""

    verdicts: int = 0
    departures: int = 0
    assertions: int = 0
    crashes: int = 0
    failed_calls: int = 0
    repeats: int = 0
    retries: int = 0
    contrasts: int = 0
    refusals: int = 0
    sightings: int = 0
    steps: int = 0


# weight in importance, strength in confidence, count at which half of either is reached
WEIGHTS: dict[str, tuple[float, float, float]] = {
    "verdicts": (0.07, 0.45, 0.5),
    "departures": (0.16, 0.60, 1.0),
    "assertions": (0.14, 0.60, 1.0),
    "crashes": (0.12, 0.40, 0.5),
    "failed_calls": (0.12, 0.35, 3.0),
    "repeats": (0.08, 0.25, 2.0),
    "retries": (0.20, 0.50, 1.0),
    "contrasts": (0.18, 0.40, 1.0),
    "refusals": (0.05, 0.12, 2.0),
    "sightings": (0.05, 0.30, 1.0),
    "steps": (0.06, 0.15, 12.0),
}


def evidence_of(f: Findings) -> Evidence:
    """Counts the findings."""
    a = f.answer
    seen = 0 if a is None else sum(x is not None for x in (a.expected_event, a.given_event))
    return Evidence(
        verdicts=int(a is not None and (a.verdict is not None or wrong(f)))
        + (len(f.dialogue.ratings) if f.dialogue else 0),
        departures=len(f.departures) + len(f.untold),
        assertions=len(f.assertions),
        crashes=int(f.crash is not None),
        failed_calls=f.failed_calls,
        repeats=(f.again.times if f.again else 0)
        + sum(r.count for r in f.repeats)
        + sum(s.count for s in f.streaks),
        retries=len([r for r in f.retries if r.changes]),
        contrasts=f.contrast.others if f.contrast else 0,
        refusals=len(f.refusals) + len(f.unconfirmed),
        sightings=seen
        + len(f.hops)
        + (1 if f.origin and (f.origin.from_tools or f.origin.carried) else 0),
        steps=f.calls + (f.dialogue.replies if f.dialogue else 0),
    )


def importance(outcome: OutcomeType, e: Evidence) -> float:
    """0..1; see the module's head."""
    gained = sum(
        weight * _share(getattr(e, name), half) for name, (weight, _, half) in WEIGHTS.items()
    )
    return round(min(1.0, BASE[outcome] + gained), 3)


def confidence(e: Evidence) -> float:
    """0..1; see the module's head."""
    doubt = 0.72
    for name, (_, strength, half) in WEIGHTS.items():
        doubt *= (1 - strength) ** _share(getattr(e, name), half)
    return round(min(0.97, 1 - doubt), 3)


def _share(n: int, half: float) -> float:
    return n / (n + half)
