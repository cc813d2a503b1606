"""The lower bound of usefulness, against closed forms and exact sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory_api.playbooks.usefulness import beta_cdf, is_harmful, usefulness
from tests.support.cases import each_case

counts = st.integers(0, 3_000)


@each_case(
    ("helpful", "harmful", "expected"),
    [
        (0, 0, 0.05),
        (1, 0, math.sqrt(0.05)),
        (0, 1, 1 - math.sqrt(0.95)),
        (1, 1, 0.13535036217),  # the root of 3x² - 2x³ = .05
        (10, 0, 0.05 ** (1 / 11)),
        (0, 10, 1 - 0.95 ** (1 / 11)),
        (2**31 - 1, 0, 0.05 ** (1 / 2**31)),
    ],
)
def test_known_values(helpful: int, harmful: int, expected: float) -> None:
    assert usefulness(helpful, harmful) == pytest.approx(expected, abs=1e-8)


def test_beta_cdf_is_the_binomial_tail() -> None:
    for a in range(1, 30, 3):
        for b in range(1, 30, 4):
            for x in (0.01, 0.3, 0.5, 0.77, 0.99):
                n = a + b - 1
                exact = sum(math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1))
                assert beta_cdf(x, a, b) == pytest.approx(exact, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(counts, counts)
def test_verdicts_move_usefulness(helpful: int, harmful: int) -> None:
    now = usefulness(helpful, harmful)
    assert 0 < now < 1
    assert usefulness(helpful + 1, harmful) > now > usefulness(helpful, harmful + 1)
    assert beta_cdf(now, 1 + helpful, 1 + harmful) == pytest.approx(0.05, abs=1e-6)


def test_approximation_is_continuous() -> None:
    for share in (0.1, 0.5, 0.9):
        helpful = int(100_000 * share)
        just_below = usefulness(helpful, 99_997 - helpful)
        just_above = usefulness(helpful, 100_000 - helpful)
        assert just_below == pytest.approx(just_above, abs=1e-4)


def test_harm_requires_certainty() -> None:
    assert [is_harmful(0, n) for n in (0, 3, 4)] == [False, False, True]
    assert not is_harmful(5, 5)
