"""Statistics of paired evaluations. Scores are between 0 and 1.

Repeats of a task are averaged before anything is computed, because they are not independent
(Miller 2024, arXiv 2411.00640). So n is always a number of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, sqrt
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)
Z_POWER = NormalDist().inv_cdf(0.8)
"""Quantile for a power of 80 %."""
MIN_CHANGES = 6
"""Tasks that must differ, all in one direction, for p < .05."""


@dataclass(frozen=True)
class Interval:
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """First minus second, over tasks that both answered. `low` and `high` limit the 95 % interval
    of the mean difference, `p` is that of the exact McNemar test.
    """

    tasks: int
    mean: float
    low: float
    high: float
    p: float
    better: int
    worse: int
    tasks_needed: int
    """Tasks at which a difference of `delta` is found with a probability of 80 %."""
    changes_needed: int
    """Tasks that must differ in one direction for p < .05, with as many in the other as now."""


def wilson_interval(scores: Sequence[float]) -> Interval:
    """Mean of scores with the 95 % interval of Wilson (1927). Without scores, 0 to 1."""
    n = len(scores)
    if not n:
        return Interval(0.0, 0.0, 1.0)
    mean = sum(scores) / n
    scale = 1 + Z95**2 / n
    center = (mean + Z95**2 / (2 * n)) / scale
    reach = Z95 * sqrt(mean * (1 - mean) / n + Z95**2 / (4 * n * n)) / scale
    low = 0.0 if mean == 0 else max(0.0, center - reach)
    high = 1.0 if mean == 1 else min(1.0, center + reach)
    return Interval(mean, low, high)


def mcnemar_p(better: int, worse: int) -> float:
    """Two-sided exact McNemar test: the binomial test of `better` against `worse` pairs."""
    n = better + worse
    tail = sum(comb(n, k) for k in range(min(better, worse) + 1))
    return float(min(1, 2 * tail / 2**n))


def mean_interval(values: Sequence[float]) -> Interval:
    """Mean of paired differences with its 95 % interval.

    It is the adjusted Wald interval for matched pairs of Agresti & Min (Statistics in Medicine 24,
    2005): two more pairs, one unchanged and half a pair in each direction, so that a few tasks that
    all agree do not appear certain.
    """
    if not values:
        return Interval(0.0, -1.0, 1.0)
    n = len(values) + 2
    center = sum(values) / n
    reach = Z95 * sqrt(_variance(values) / n)
    return Interval(sum(values) / len(values), max(-1.0, center - reach), min(1.0, center + reach))


def paired_difference(
    first: Sequence[float], second: Sequence[float], *, delta: float = 0.05
) -> PairedDifference:
    """Compare the scores of the same tasks, in the same order."""
    values = [a - b for a, b in zip(first, second, strict=True)]
    interval = mean_interval(values)
    better, worse = sum(v > 0 for v in values), sum(v < 0 for v in values)
    p = mcnemar_p(better, worse)
    return PairedDifference(
        tasks=len(values),
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        p=p,
        better=better,
        worse=worse,
        tasks_needed=tasks_needed(values, delta=delta),
        changes_needed=changes_needed(min(better, worse)),
    )


def changes_needed(others: int) -> int:
    """The fewest tasks in one direction that reach p < .05 against `others` in the other one."""
    count = others + MIN_CHANGES
    while mcnemar_p(count, others) >= 0.05:
        count += 1
    return count


def tasks_needed(differences: Sequence[float], *, delta: float = 0.05) -> int:
    """How many tasks show a mean difference of `delta` at p < .05 with a power of 80 %, if as many
    tasks differ as in these `differences`.
    """
    spread = max(_mean_square(differences), delta) - delta**2
    return ceil((Z95 + Z_POWER) ** 2 * spread / delta**2)


def format_p(p: float) -> str:
    return "< .001" if p < 0.001 else f"{p:.3f}".lstrip("0")


def _variance(values: Sequence[float]) -> float:
    """Variance of the differences with the two pairs of Agresti & Min."""
    mean = sum(values) / (len(values) + 2)
    return _mean_square(values) - mean * mean


def _mean_square(values: Sequence[float]) -> float:
    """The mean of the squared differences. Agresti & Min add two pairs, one of which differs."""
    return (sum(v * v for v in values) + 1) / (len(values) + 2)
