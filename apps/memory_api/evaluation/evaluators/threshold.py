"""Thresholds: which scores mean success, partial or failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.evaluation.schemas import (
    Criterion,
    CriterionScore,
    EvaluationInput,
    EvaluatorResult,
)
from memory_api.llm.port import LLM
from memory_api.trace_analysis.arguments import as_mapping
from memory_api.trace_analysis.ground_truth import MAX_RATING, find_ratings, number_of
from memory_api.traces.schemas import OutcomeType

Band = tuple[float, float]
"""(failure up to, success from)."""

_SCORE_FIELDS = ("quality_score", "score", "reward")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A score of at most `low` is a failure, of at least `high` a success, else partial."""

    low: float = 0.3
    high: float = 0.8
    own: Mapping[Criterion, Band] = field(default_factory=dict[Criterion, Band])

    def verdict(self, score: CriterionScore) -> OutcomeType:
        low, high = self.own.get(score.criterion, (self.low, self.high))
        if score.score >= high:
            return OutcomeType.SUCCESS
        return OutcomeType.FAILURE if score.score <= low else OutcomeType.PARTIAL


class ThresholdEvaluator:
    """Reads the scores that a trace contains.

    These are `metadata.scores` (criterion → 0..1), `quality_score`, `score` or `reward` (0..1:
    correctness), and ratings from 1 to 5 under `satisfaction`, `helpfulness`, `rating`, `stars` or
    `csat`, of the metadata or the ground truth (helpfulness).
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()

    async def evaluate(self, case: EvaluationInput) -> EvaluatorResult:
        scores: dict[Criterion, CriterionScore] = {}
        for name, criterion, value in _find_scores(case):
            verdict = self.thresholds.verdict(CriterionScore(criterion, value, ()))
            scores.setdefault(criterion, CriterionScore(criterion, value, (f"{name}: {verdict}",)))
        return EvaluatorResult(tuple(scores.values()))


def _find_scores(case: EvaluationInput) -> Iterator[tuple[str, Criterion, float]]:
    """Name and value as given, the criterion, and the score. The most specific comes first."""
    scores = as_mapping(case.metadata.get("scores"))
    for criterion in Criterion:
        if (value := _number(scores.get(criterion.value), 0, 1)) is not None:
            yield f"scores.{criterion} {value:g}", criterion, value
    for name in _SCORE_FIELDS:
        if (value := _number(case.metadata.get(name), 0, 1)) is not None:
            yield f"{name} {value:g}", Criterion.CORRECTNESS, value
    for source in (case.metadata, as_mapping(case.ground_truth)):
        for name, rating in find_ratings(source).items():
            share = (rating - 1) / (MAX_RATING - 1)
            yield f"{name} {rating:g} of {MAX_RATING}", Criterion.HELPFULNESS, share


def _number(value: Any, minimum: float, maximum: float) -> float | None:
    number = number_of(value)
    return number if number is not None and minimum <= number <= maximum else None


def thresholds_of(settings: Settings) -> Thresholds:
    """Parses `0.3,0.8` for all criteria, then `;safety=0.5,1` for one. Raises
    `ConfigurationError`.
    """
    first, *others = settings.evaluation_thresholds.split(";")
    try:
        own = {Criterion(name.strip()): _band(band) for name, band in map(_pair, others)}
        low, high = _band(first)
    except ValueError as error:
        raise ConfigurationError(f"HANSEI_EVALUATION_THRESHOLDS: {error}") from error
    return Thresholds(low, high, own)


def _pair(text: str) -> tuple[str, str]:
    name, _, band = text.partition("=")
    return name, band


def _band(text: str) -> Band:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} must be two numbers separated by a comma.") from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"{text!r} must satisfy 0 <= failure < success <= 1.")
    return low, high


def open_evaluator(settings: Settings, llm: LLM | None) -> ThresholdEvaluator:
    return ThresholdEvaluator(thresholds_of(settings))
