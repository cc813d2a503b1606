"""How sure a step and a run are: factors, weights, penalties, levels, groundedness and
calibration (S3.34–S3.42). Pure: the factors are computed by the tools.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from memory_api.grace.config import GraceConfig, ThresholdSection

Level = Literal["silent", "notify", "confirm", "escalate"]
GROUNDED_SELF_EVALUATION = 0.8
"""A reasoning step without sources, but with at least this self-evaluation, gets no penalty."""
MIN_SELF_EVALUATION = 0.6
"""A self-evaluation up to this number is not taken as a factor. Below it, a self-evaluation or
coverage caps the answer.
"""
MIN_COVERAGE = 0.1
STRONG_SCORE = 0.6
"""A best hit with at least this score is taken as the search quality."""
NO_RESULTS, NO_SOURCES, TOOL_FAILURE = 0.5, 0.7, 0.8
"""What the score of a step is multiplied by; `TOOL_FAILURE` if no call succeeded."""
SUPPORT_WEIGHT, SELF_EVALUATION_WEIGHT, COVERAGE_WEIGHT = 0.6, 0.25, 0.15
SEARCH_SHARE = 0.2
"""The share of the search in the score of a compared answer."""
MAX_DOUBTED = 0.3
"""The highest score of an answer with a contradiction, or whose judge is not sure at all."""
UNCITED, UNDECIDED = 0.85, 0.3
"""What a compared answer without sources is multiplied by; the share of the support that is lost
if few claims are decided.
"""
DECIDED_SHARE = 0.8
"""From this share of decided claims on, nothing is lost."""
THRESHOLD_STEP = 0.05
MAX_ERROR_SHARE = 0.3
FEEDBACK_WINDOW = 10
"""Items of feedback after which the thresholds may move."""
MAX_AVERAGE_PENALTY = 0.15
BIN_COUNT = 10
MIN_CHANCE = 1e-4
"""Scores of 0 and 1 have no logit, and one wrong answer at 1 an infinite loss."""
CONTRADICTION = "contradiction"
"""The penalty of an answer with a claim that its sources contradict."""
TEMPERATURES = tuple(round(0.25 * 1.1**n, 4) for n in range(38))
"""The grid of the calibration: 0.25 to 8.5."""


@dataclass(frozen=True)
class ConfidenceFactors:
    """What is known about a step, each from 0 to 1 unless it is a count."""

    search_result_count: int = 0
    search_avg_score: float = 0.0
    search_max_score: float = 0.0
    search_score_variance: float = 1.0
    source_agreement: float = 0.0
    source_count: int = 0
    llm_self_confidence: float = 0.5
    tool_success_rate: float = 1.0
    query_coverage: float = 0.0
    is_search_step: bool = False


@dataclass(frozen=True)
class Groundedness:
    """How the claims of an answer relate to its sources."""

    supported: int = 0
    contradicted: int = 0
    neutral: int = 0
    self_evaluation: float = 0.5
    coverage: float = 0.3

    @property
    def claims(self) -> int:
        return self.supported + self.contradicted + self.neutral


@dataclass(frozen=True)
class ConfidenceScore:
    """A score from 0 to 1, rounded to three digits, and what it consists of."""

    score: float
    breakdown: dict[str, float] = field(default_factory=dict[str, float])
    penalties: tuple[str, ...] = ()


@dataclass(frozen=True)
class ActionDecision:
    """What to do with a step of this confidence."""

    level: Level
    score: float

    @property
    def stops(self) -> bool:
        return self.level in ("confirm", "escalate")


def search_quality(factors: ConfidenceFactors) -> float:
    """0 without hits; the best score if it is strong; else .7 max + .3 mean less a share of the
    variance.
    """
    best = factors.search_max_score
    if factors.search_result_count == 0 and best == 0:
        return 0.0
    if best >= STRONG_SCORE:
        return best
    spread = min(MAX_AVERAGE_PENALTY, 0.3 * factors.search_score_variance)
    return max(0.0, 0.7 * best + 0.3 * factors.search_avg_score - spread)


def search_statistics(factors: ConfidenceFactors) -> dict[str, float]:
    """What is known about the passages of a search; without one, only their number."""
    if not factors.search_result_count:
        return {"hits": 0}
    return {
        "hits": factors.search_result_count,
        "max": _round(factors.search_max_score),
        "mean": _round(factors.search_avg_score),
        "variance": _round(factors.search_score_variance),
        "agreement": _round(factors.source_agreement),
    }


def score_step(factors: ConfidenceFactors, config: GraceConfig) -> ConfidenceScore:
    """The confidence in a step: the quality of a search, or the weighted mean of the present
    factors, less the penalties.
    """
    quality = search_quality(factors)
    if factors.is_search_step:
        parts = {"search_quality": quality, "tool_success": factors.tool_success_rate}
        score = quality * factors.tool_success_rate
    else:
        parts = _present_factors(factors, quality)
        weights = config.confidence_weights.model_dump()
        total = sum(weights[name] for name in parts)
        score = (
            sum(weights[name] * value for name, value in parts.items()) / total if total else 0.0
        )
    score, penalties = _apply_penalties(score, factors)
    breakdown = {k: _round(v) for k, v in parts.items()}
    if factors.is_search_step:
        breakdown |= search_statistics(factors)
    return ConfidenceScore(_round(score), breakdown, penalties)


def _present_factors(factors: ConfidenceFactors, quality: float) -> dict[str, float]:
    parts = {"tool_success": factors.tool_success_rate}
    if quality > 0:
        parts["search_quality"] = quality
    if factors.source_count > 1:
        parts["source_agreement"] = factors.source_agreement
    if factors.llm_self_confidence > MIN_SELF_EVALUATION:
        parts["self_evaluation"] = factors.llm_self_confidence
    if factors.query_coverage > MIN_COVERAGE:
        parts["query_coverage"] = factors.query_coverage
    return parts


def _apply_penalties(score: float, factors: ConfidenceFactors) -> tuple[float, tuple[str, ...]]:
    names: list[str] = []
    if factors.is_search_step and factors.search_result_count == 0:
        score *= NO_RESULTS
        names.append("no_results")
    if factors.tool_success_rate < 1:
        score *= TOOL_FAILURE + (1 - TOOL_FAILURE) * factors.tool_success_rate
        names.append("tool_failure")
    has_hits = factors.is_search_step and factors.search_result_count > 0
    is_sure = not factors.is_search_step and factors.llm_self_confidence >= GROUNDED_SELF_EVALUATION
    if factors.source_count == 0 and not has_hits and not is_sure:
        score *= NO_SOURCES
        names.append("no_sources")
    return score, tuple(names)


def score_grounded(
    grounded: Groundedness, search_score: float, source_count: int
) -> ConfidenceScore:
    """The confidence in an answer whose claims were compared with its sources: .8 of the answer
    (support .6, self-evaluation .25, coverage .15) and .2 of the search. A contradiction caps the
    part of the answer, and so does a low self-evaluation or coverage, in proportion.
    """
    decided = grounded.supported + grounded.contradicted
    if decided == 0:
        support, own, coverage = 0.5, min(grounded.self_evaluation, 0.5), 0.3
        search_score = min(search_score, 0.2)
    else:
        share = min(1.0, decided / max(1, grounded.claims) / DECIDED_SHARE)
        damping = 1 - UNDECIDED + UNDECIDED * share
        support = grounded.supported / decided * damping
        own, coverage = grounded.self_evaluation, grounded.coverage
    answer = SUPPORT_WEIGHT * support + SELF_EVALUATION_WEIGHT * own + COVERAGE_WEIGHT * coverage
    doubt = max(0.0, 1 - min(own, coverage) / MIN_SELF_EVALUATION) if decided else 0.0
    answer = min(answer, 1 - (1 - MAX_DOUBTED) * doubt)
    penalties: list[str] = []
    if grounded.contradicted:
        answer = min(answer, MAX_DOUBTED)
        penalties.append(CONTRADICTION)
    score = (1 - SEARCH_SHARE) * answer + SEARCH_SHARE * search_score
    if source_count == 0:
        score *= UNCITED
        penalties.append("no_sources")
    parts = {
        "support": support,
        "self_evaluation": own,
        "coverage": coverage,
        "search": search_score,
    }
    return ConfidenceScore(
        _round(score), {k: _round(v) for k, v in parts.items()}, tuple(penalties)
    )


def decide(score: float, thresholds: ThresholdSection) -> ActionDecision:
    """The level of a score. Each threshold belongs to the higher level."""
    if score >= thresholds.silent:
        return ActionDecision("silent", score)
    if score >= thresholds.notify:
        return ActionDecision("notify", score)
    return ActionDecision("confirm" if score >= thresholds.confirm else "escalate", score)


def calibrate(score: float, temperature: float) -> float:
    """The score with its logit divided by the temperature."""
    clipped = _clip(score)
    logit = math.log(clipped / (1 - clipped)) / temperature
    return 1 / (1 + math.exp(-logit))


def _clip(chance: float) -> float:
    return min(max(chance, MIN_CHANCE), 1 - MIN_CHANCE)


def fit_temperature(outcomes: Sequence[tuple[float, bool]]) -> float:
    """The temperature with the least log loss on (score, correct) pairs. It is 1 if all are correct
    or all are wrong.
    """
    if len({correct for _, correct in outcomes}) < 2:
        return 1.0
    return min(TEMPERATURES, key=lambda t: (_log_loss(outcomes, t), abs(math.log(t))))


def _log_loss(outcomes: Sequence[tuple[float, bool]], temperature: float) -> float:
    total = 0.0
    for score, correct in outcomes:
        chance = _clip(calibrate(score, temperature))
        total -= math.log(chance if correct else 1 - chance)
    return total / len(outcomes)


def expected_calibration_error(outcomes: Sequence[tuple[float, bool]]) -> float:
    """ECE with ten bins: the mean distance of confidence and share of correct answers."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for score, correct in outcomes:
        bins.setdefault(min(int(score * BIN_COUNT), BIN_COUNT - 1), []).append((score, correct))
    return sum(
        abs(sum(score for score, _ in each) - sum(correct for _, correct in each))
        for each in bins.values()
    ) / max(1, len(outcomes))


THRESHOLD_CAPS = ThresholdSection(silent=0.95, notify=0.85, confirm=0.60)
THRESHOLD_FLOORS = ThresholdSection(silent=0.80, notify=0.60, confirm=0.30)


def adjust_thresholds(
    thresholds: ThresholdSection, feedback: Sequence[tuple[float, bool]]
) -> ThresholdSection:
    """The thresholds after these (confidence, correct) pairs, each of which counts once: raised if
    more than 30 % were wrong though above `notify`, else lowered if more than 30 % were right
    though below `confirm`. Unchanged with fewer pairs than `FEEDBACK_WINDOW`.
    """
    if len(feedback) < FEEDBACK_WINDOW:
        return thresholds
    share = 1 / len(feedback)
    false_positives = share * sum(s > thresholds.notify and not right for s, right in feedback)
    false_negatives = share * sum(s < thresholds.confirm and right for s, right in feedback)
    if false_positives > MAX_ERROR_SHARE:
        return _move(thresholds, THRESHOLD_STEP)
    if false_negatives > MAX_ERROR_SHARE:
        return _move(thresholds, -THRESHOLD_STEP)
    return thresholds


def _move(thresholds: ThresholdSection, step: float) -> ThresholdSection:
    moved = {
        name: round(
            min(max(value + step, getattr(THRESHOLD_FLOORS, name)), getattr(THRESHOLD_CAPS, name)),
            4,
        )
        for name, value in thresholds.model_dump().items()
    }
    return ThresholdSection(**moved)


def _round(value: float) -> float:
    return round(min(1.0, max(0.0, value)), 3)
