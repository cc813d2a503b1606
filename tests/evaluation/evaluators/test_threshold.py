"""Scores that came with a trace, and what scores mean."""

from __future__ import annotations

from typing import Any

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.settings import Settings
from memory_api.evaluation.evaluators.threshold import Thresholds, thresholds_of
from memory_api.evaluation.schemas import Criterion, CriterionScore
from memory_api.traces.schemas import OutcomeType
from tests.support.cases import each_case
from tests.support.evaluation_cases import judged, score_of
from tests.support.junit import junit


def settings(**fields: Any) -> Settings:
    return Settings(_env_file=None, **fields)  # type: ignore[call-arg]


@each_case(
    ("score", "verdict"),
    [(0.0, "failure"), (0.3, "failure"), (0.31, "partial"), (0.79, "partial"), (0.8, "success")],
)
def test_threshold_bands(score: float, verdict: str) -> None:
    assert Thresholds().verdict(CriterionScore(Criterion.CORRECTNESS, score, ())) == OutcomeType(
        verdict
    )


def test_criterion_may_have_own_band() -> None:
    band = thresholds_of(settings(evaluation_thresholds="0.2,0.6; safety=0.5,1"))
    verdicts = [
        band.verdict(CriterionScore(c, 0.6, ())) for c in (Criterion.CORRECTNESS, Criterion.SAFETY)
    ]
    assert verdicts == [OutcomeType.SUCCESS, OutcomeType.PARTIAL]


@each_case(
    "text", ["", "0.3", "a,b", "0.8,0.3", "0.3,0.3", "-1,2", "0.3,0.8;beauty=0.1,0.2", "nan,0.8"]
)
def test_invalid_bands_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^HANSEI_EVALUATION_THRESHOLDS: "):
        thresholds_of(settings().model_copy(update={"evaluation_thresholds": text}))


@each_case(
    ("fields", "criterion", "score", "reason"),
    [
        ({"metadata": {"quality_score": 0.9}}, "correctness", 0.9, "quality_score 0.9: success"),
        ({"metadata": {"reward": 0}}, "correctness", 0.0, "reward 0: failure"),
        ({"metadata": {"scores": {"safety": 0.5}}}, "safety", 0.5, "scores.safety 0.5: partial"),
        ({"metadata": {"rating": 4}}, "helpfulness", 0.75, "rating 4 of 5: partial"),
        ({"ground_truth": {"satisfaction": 5}}, "helpfulness", 1.0, "satisfaction 5 of 5: success"),
    ],
)
async def test_submitted_scores_are_used(
    fields: dict[str, Any], criterion: str, score: float, reason: str
) -> None:
    found = await score_of(Criterion(criterion), **fields)
    assert found == CriterionScore(Criterion(criterion), score, (reason,))


@each_case("value", [True, "0.9", 1.5, -0.1, None, [1]])
async def test_invalid_submitted_scores_are_ignored(value: Any) -> None:
    assert await score_of(Criterion.CORRECTNESS, metadata={"quality_score": value}) is None


async def test_evidence_wins_over_submitted_scores() -> None:
    scored = {"quality_score": 1.0}
    found = await judged(metadata=scored, test_report=junit(a="x", b="x"))
    best = found.best(Criterion.CORRECTNESS)
    assert best is not None
    assert best.score == 0.0
    assert (found.verdict, found.proven) == (OutcomeType.FAILURE, True)


async def test_rating_decides_without_correctness_evidence() -> None:
    found = await judged(ground_truth={"satisfaction": 1})
    assert (found.verdict, found.proven) == (OutcomeType.FAILURE, False)
