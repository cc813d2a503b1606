"""Scores, levels, calibration and thresholds, and that each setting has an effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory_api.core.errors import ConfigurationError
from memory_api.core.resources import packaged_path
from memory_api.grace.confidence import (
    ConfidenceFactors,
    Groundedness,
    adjust_thresholds,
    calibrate,
    decide,
    expected_calibration_error,
    fit_temperature,
    score_grounded,
    score_step,
    search_quality,
)
from memory_api.grace.config import GraceConfig, ThresholdSection, read_config
from tests.support.cases import each_case

CONFIG = GraceConfig()
SEARCH = ConfidenceFactors(3, 0.5, 0.55, 0.1, 0.4, 2, is_search_step=True)
ANSWER = ConfidenceFactors(2, 0.5, 0.7, 0.1, 0.6, 2, 0.9, 1.0, 0.8)
FILE = packaged_path("config") / "grace_config.yml"


def test_search_quality() -> None:
    assert search_quality(ConfidenceFactors()) == 0
    assert search_quality(ConfidenceFactors(1, 0.7, 0.7)) == 0.7
    assert search_quality(SEARCH) == pytest.approx(0.7 * 0.55 + 0.3 * 0.5 - 0.03)


def test_penalties() -> None:
    nothing = ConfidenceFactors(search_max_score=0.8, is_search_step=True)
    assert score_step(nothing, CONFIG).penalties == ("no_results", "no_sources")
    flaky = ConfidenceFactors(3, 0.5, 0.8, tool_success_rate=0.5, source_count=1,
                              is_search_step=True)  # fmt: skip
    scored = score_step(flaky, CONFIG)
    assert (scored.score, scored.penalties) == (pytest.approx(0.8 * 0.5 * 0.9), ("tool_failure",))


def test_answer_weighs_present_factors() -> None:
    score = score_step(ANSWER, CONFIG)
    expected = (0.25 * 0.7 + 0.2 * 0.6 + 0.25 * 0.9 + 0.15 + 0.15 * 0.8) / 1.0
    assert score.score == pytest.approx(expected, abs=0.001)
    assert set(score.breakdown) == set(CONFIG.confidence_weights.model_dump())


@each_case(
    ("score", "level"),
    [(0.9, "silent"), (0.899, "notify"), (0.7, "notify"), (0.4, "confirm"), (0.399, "escalate")],
)
def test_levels(score: float, level: str) -> None:
    assert decide(score, CONFIG.thresholds).level == level


def test_contradiction_caps_the_answer() -> None:
    right = score_grounded(Groundedness(4, 0, 0, 0.9, 1.0), 0.8, 1)
    wrong = score_grounded(Groundedness(3, 1, 0, 0.9, 1.0), 0.8, 1)
    assert right.score == pytest.approx(0.8 * (0.6 + 0.225 + 0.15) + 0.2 * 0.8)
    assert wrong.score == pytest.approx(0.8 * 0.3 + 0.2 * 0.8)
    assert wrong.penalties == ("contradiction",)
    neutral = score_grounded(Groundedness(0, 0, 5, 1.0, 1.0), 1.0, 0)
    assert decide(neutral.score, CONFIG.thresholds).level == "escalate"


def test_doubt_of_the_judge_caps_the_answer() -> None:
    """S3.36: however well the sources support it."""
    unsure = score_grounded(Groundedness(4, 0, 0, 0.0, 1.0), 0.8, 1)
    beside = score_grounded(Groundedness(4, 0, 0, 1.0, 0.0), 0.8, 1)
    assert unsure.score == beside.score == pytest.approx(0.8 * 0.3 + 0.2 * 0.8)
    sure = score_grounded(Groundedness(4, 0, 0, 0.6, 0.6), 0.8, 1)
    assert sure.score == pytest.approx(0.8 * (0.6 + 0.15 + 0.09) + 0.2 * 0.8)


def test_calibration_lowers_the_error() -> None:
    outcomes = [(0.9, n % 2 == 0) for n in range(40)] + [(0.6, n % 2 == 0) for n in range(40)]
    temperature = fit_temperature(outcomes)
    calibrated = [(calibrate(score, temperature), right) for score, right in outcomes]
    assert temperature > 1
    assert expected_calibration_error(calibrated) < expected_calibration_error(outcomes) / 2
    assert fit_temperature([(0.9, True)] * 30) == 1
    assert fit_temperature([(1.0, False), (1.0, True), (0.0, True), (0.0, False)]) > 8


def test_thresholds_move_within_bounds() -> None:
    start = CONFIG.thresholds
    sure_but_wrong = [(0.95, False)] * 10
    raised = adjust_thresholds(start, sure_but_wrong)
    assert (raised.silent, raised.notify, raised.confirm) == (0.95, 0.75, 0.45)
    for _ in range(9):
        raised = adjust_thresholds(raised, sure_but_wrong)
    assert (raised.silent, raised.notify, raised.confirm) == (0.95, 0.85, 0.6)
    lowered = start
    for _ in range(9):
        lowered = adjust_thresholds(lowered, [(0.1, True)] * 10)
    assert (lowered.silent, lowered.notify, lowered.confirm) == (0.8, 0.6, 0.3)
    assert adjust_thresholds(start, sure_but_wrong[:9]) == start


def test_packaged_file_has_the_defaults() -> None:
    assert read_config(FILE, {}) == CONFIG


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GRACE_CONFIDENCE_WEIGHTS_TOOL_SUCCESS": "0.9"}, "sum to 1"),
        ({"GRACE_THRESHOLDS_CONFIRM": "0.95"}, "order"),
        ({"GRACE_NOTHING_AT_ALL": "1"}, "no effect"),
        ({"GRACE_SEARCH_TOP_K": "many"}, "search.top_k"),
        ({"GRACE_SEARCH_TOP": "1"}, "search.top"),
        ({"GRACE_LLM_MODEL": "m"}, "HANSEI_LLM_MODEL"),
        ({"GRACE_DOCUMENT_STORE_URL": "x"}, "DATABASE_URL"),
    ],
)
def test_wrong_setting_is_named(environment: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_config(FILE, environment)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.yml"):
        read_config(tmp_path / "nothing.yml", {})


def test_thresholds_are_ordered() -> None:
    with pytest.raises(ValueError, match="order"):
        ThresholdSection(silent=0.5, notify=0.6, confirm=0.4)
