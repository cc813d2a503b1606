"""The statistics of evaluations against published and exactly known values."""

from __future__ import annotations

from dataclasses import asdict
from math import comb

import pytest

from hansei.evaluation.statistics import (
    MIN_CHANGES,
    changes_needed,
    format_p,
    mcnemar_p,
    mean_interval,
    paired_difference,
    tasks_needed,
    wilson_interval,
)
from hansei.evaluation.text_report import _comparisons, sections
from hansei.evaluation.wording import first_pass_line, headline
from tests.support.cases import each_case
from tests.support.evaluation_report import evaluation_report


@each_case(
    ("right", "total", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 3 (Wilson)
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_wilson_interval(right: int, total: int, low: float, high: float) -> None:
    interval = wilson_interval([1.0] * right + [0.0] * (total - right))
    assert interval.mean == pytest.approx(right / total)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=5e-5)


def test_interval_without_scores_is_everything() -> None:
    assert (wilson_interval([]).low, wilson_interval([]).high) == (0, 1)
    assert (mean_interval([]).low, mean_interval([]).high) == (-1, 1)


@each_case(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (3, 3, 1.0), (10, 2, 158 / 4096)],
)
def test_mcnemar(better: int, worse: int, p: float) -> None:
    assert mcnemar_p(better, worse) == pytest.approx(p)
    assert mcnemar_p(worse, better) == pytest.approx(p)


def test_mcnemar_of_many_pairs_is_a_sum_of_exact_integers() -> None:
    tail = sum(comb(3000, k) for k in range(1401))
    assert mcnemar_p(1600, 1400) == pytest.approx(2 * tail / 2**3000)


def test_paired_interval_of_agresti_and_min() -> None:
    # Agresti & Min, Statistics in Medicine 24 (2005), section 1: 53, 8, 16, 9 of 86 pairs.
    first = [1] * 53 + [1] * 8 + [0] * 16 + [0] * 9
    second = [1] * 53 + [0] * 8 + [1] * 16 + [0] * 9
    result = paired_difference(second, first)
    assert (result.better, result.worse, result.tasks) == (16, 8, 86)
    assert result.mean == pytest.approx(8 / 86)
    center, reach = 8 / 88, 1.96 * ((25 - 64 / 88) ** 0.5) / 88
    assert (result.low, result.high) == pytest.approx((center - reach, center + reach), abs=1e-4)
    assert result.p == pytest.approx(0.1516, abs=5e-5)


def test_tasks_that_all_agree_do_not_appear_certain() -> None:
    interval = mean_interval([1.0] * 5)
    assert interval.mean == 1
    assert interval.low < 0.6


def test_tasks_needed_for_five_points() -> None:
    # A fifth of the pairs differ, in whatever direction: n = 7.849 * (share - delta²) / delta².
    share = 21 / 102
    for differences in ([1.0] * 10 + [-1.0] * 10 + [0.0] * 80, [1.0] * 20 + [0.0] * 80):
        needed = tasks_needed(differences), tasks_needed(differences, delta=0.1)
        assert needed[0] == pytest.approx(7.849 * (share - 0.0025) / 0.0025, abs=1)
        assert needed[1] == pytest.approx(7.849 * (share - 0.01) / 0.01, abs=1)
    assert tasks_needed([0.0] * 10_000) >= 140  # pairs that never differ do not need zero tasks


@each_case(("p", "text"), [(0.0004, "< .001"), (0.0312, ".031"), (1.0, "1.000")])
def test_format_p(p: float, text: str) -> None:
    assert format_p(p) == text


@pytest.mark.parametrize(("low", "p", "is_shown"), [(0.4, 0.001, False), (-0.1, 0.3, True)])
def test_report_asks_for_more_tasks_only_without_a_result(
    low: float, p: float, is_shown: bool
) -> None:
    row = {"first": "hansei", "second": "none", "tasks": 20, "mean": 0.6, "low": low, "high": 0.8}
    row |= {"p": p, "better": 13, "worse": 0, "became_right": [], "became_wrong": []}
    row |= {"tasks_needed": 902, "changes_needed": 6}
    lines = _comparisons({"advice": []}, [row], "held-out tasks", str).lines
    assert lines == is_shown * [
        "hansei − none: Tasks that changed: 13 in one direction, 0 in the other. p < .05 needs 6"
        " against 0. To see a difference of 5 points, add 882 tasks (power 80 %)."
    ]


def test_report_asks_for_no_number_of_tasks_if_none_changed() -> None:
    """It was 244 for 10 tasks without a change, which followed from the two added pairs only."""
    row = {"first": "hansei", "second": "none"} | asdict(paired_difference([1.0] * 10, [1.0] * 10))
    (line,) = _comparisons({"advice": []}, [row], "held-out tasks", str).lines
    assert "p < .05 needs 6 against 0." in line
    assert "5 points" not in line


def test_report_with_partial_scores_has_no_p_in_its_headline_and_names_the_test() -> None:
    """It said "No difference is shown" and "p < .001": many small gains and a large loss."""
    report = evaluation_report()
    first, second = [0.52] * 29 + [0.0], [0.5] * 29 + [1.0]
    row = report["comparisons"][0] | asdict(paired_difference(first, second))
    report |= {"comparisons": [row], "first_pass": [row], "partial_scores": True}
    assert row["p"] < 0.001
    assert headline(report).startswith("No difference is shown")
    for text in (headline(report), first_pass_line(report)):
        assert "95 % interval" in text
        assert "p <" not in text
    shown = sections(report, on_page=True)
    (differences, *_) = [each for each in shown if each.title.startswith("Differences")]
    assert "p (sign test)" in differences.header
    assert not any("p < .05 needs" in line for line in differences.lines)
    (words,) = [dict(each.rows) for each in shown if each.title == "Words of this report"]
    assert "whatever the size of the change" in words["p (sign test)"]


@each_case(("others", "needed"), [(0, MIN_CHANGES), (1, 8), (2, 10), (10, 23)])
def test_changes_needed_are_the_fewest_that_reach_significance(others: int, needed: int) -> None:
    assert changes_needed(others) == needed
    assert mcnemar_p(needed, others) < 0.05 <= mcnemar_p(needed - 1, others)
