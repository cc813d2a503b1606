"""Scores as verdicts: from where on is a run a success, up to where a failure?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.memory_api.core.errors import Misconfigured
from apps.memory_api.core.settings import Settings
from apps.memory_api.evaluation.case import Case
from apps.memory_api.evaluation.schemas import Criterion, Found, Score
from apps.memory_api.llm.port import LLM
from apps.memory_api.traces.arguments import as_mapping
from apps.memory_api.traces.schemas import OutcomeType

Band = tuple[float, float]
"""(failure up to, success from)."""

_OF_ALL = ("quality_score", "score", "reward")
_RATINGS = ("satisfaction", "helpfulness", "rating", "stars", "csat")
_MOST_STARS = 5


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A score of `low` or less is a failure, of `high` or more a success, between them partial."""

    low: float = 0.3
    high: float = 0.8
    own: Mapping[Criterion, Band] = field(default_factory=dict[Criterion, Band])

    def verdict(self, score: Score) -> OutcomeType:
        low, high = self.own.get(score.criterion, (self.low, self.high))
        if score.score >= high:
            return OutcomeType.SUCCESS
        return OutcomeType.FAILURE if score.score <= low else OutcomeType.PARTIAL


class ThresholdEvaluator:
    """Takes over the scores that came with a trace and says what they mean.

    Read are `metadata.scores` (criterion → 0..1), `quality_score`, `score` or `reward` (0..1:
    correctness), and ratings from 1 to 5 under `satisfaction`, `helpfulness`, `rating`, `stars` or
    `csat`, of the metadata or the ground truth (helpfulness).
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()

    async def evaluate(self, case: Case) -> Found:
        stated: dict[Criterion, Score] = {}
        for name, criterion, value in _stated(case):
            verdict = self.thresholds.verdict(Score(criterion, value, ()))
            stated.setdefault(criterion, Score(criterion, value, (f"{name}: {verdict}",)))
        return Found(tuple(stated.values()))


def _stated(case: Case) -> Iterator[tuple[str, Criterion, float]]:
    """As what it came, the criterion, the score; most exact first."""
    scores = as_mapping(case.metadata.get("scores"))
    for criterion in Criterion:
        if (value := _number(scores.get(criterion.value), 0, 1)) is not None:
            yield f"scores.{criterion} {value:g}", criterion, value
    for name in _OF_ALL:
        if (value := _number(case.metadata.get(name), 0, 1)) is not None:
            yield f"{name} {value:g}", Criterion.CORRECTNESS, value
    for source in (case.metadata, as_mapping(case.ground_truth)):
        for name in _RATINGS:
            if (stars := _number(source.get(name), 1, _MOST_STARS)) is not None:
                share = (stars - 1) / (_MOST_STARS - 1)
                yield f"{name} {stars:g} of {_MOST_STARS}", Criterion.HELPFULNESS, share


def _number(value: Any, least: float, most: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value) if least <= value <= most else None


def thresholds_of(settings: Settings) -> Thresholds:
    """`0.3,0.8` for all, then `;safety=0.5,1` for one. Raises `Misconfigured`."""
    first, *others = settings.evaluation_thresholds.split(";")
    try:
        own = {Criterion(name.strip()): _band(band) for name, band in map(_pair, others)}
        low, high = _band(first)
    except ValueError as error:
        raise Misconfigured(f"HANSEI_EVALUATION_THRESHOLDS: {error}") from error
    return Thresholds(low, high, own)


def _pair(text: str) -> tuple[str, str]:
    name, _, band = text.partition("=")
    return name, band


def _band(text: str) -> Band:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not two numbers with a comma") from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"{text!r} must be 0 <= failure < success <= 1")
    return low, high


def open_evaluator(settings: Settings, llm: LLM | None) -> ThresholdEvaluator:
    return ThresholdEvaluator(thresholds_of(settings))
