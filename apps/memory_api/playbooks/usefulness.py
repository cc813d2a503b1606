"""Usefulness: a lower bound of helpfulness, so that a single verdict does not dominate a
ranking.
"""

from __future__ import annotations

import math
from functools import lru_cache

LOWER_PERCENTILE = 0.05
"""The probability that the true share of helpful verdicts is below `usefulness`."""
_Z = 1.6448536269514722
"""The quantile of the standard normal distribution for 1 - `LOWER_PERCENTILE`."""
_MIN_VERDICTS_FOR_NORMAL = 100_000
"""Verdicts above which the normal approximation is exact to 1e-4 and bisection is slow."""


@lru_cache(maxsize=16_384)
def usefulness(helpful: int, harmful: int) -> float:
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0..1; 0.05 without verdicts."""
    a, b = 1 + helpful, 1 + harmful
    if a + b > _MIN_VERDICTS_FOR_NORMAL and min(a, b) > 1_000:
        mean = a / (a + b)
        return mean - _Z * math.sqrt(mean * (1 - mean) / (a + b + 1))
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_cdf(middle, a, b) < LOWER_PERCENTILE:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 9)


def is_harmful(helpful: int, harmful: int) -> bool:
    """Whether the bullet is harmful more often than helpful, with a probability of 95 %."""
    return usefulness(harmful, helpful) > 0.5


MIN_HARMFUL_VERDICTS = 3
"""A bullet with fewer harmful verdicts is never quarantined."""


def harm_rate(helpful: int, harmful: int) -> float:
    """The share of harmful verdicts, 0..1; 0 without verdicts."""
    total = helpful + harmful
    return harmful / total if total else 0.0


def should_quarantine(helpful: int, harmful: int, base_rate: float) -> bool:
    """Whether the bullet has at least `MIN_HARMFUL_VERDICTS`, more harmful than helpful verdicts,
    and a larger share of harmful verdicts than `base_rate`, the share of its playbook's other
    bullets.
    """
    return (
        harmful >= MIN_HARMFUL_VERDICTS
        and harmful > helpful
        and harmful / (helpful + harmful) > base_rate
    )


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b), for 0 < x < 1 and a, b > 0.

    Source: the continued fraction DLMF 8.17.22, evaluated by Lentz's method. The symmetry 8.17.4
    reflects x to the side with fast convergence.
    """
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front / (a * _continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d1/(1 + d2/(1 + …)) with the coefficients of DLMF 8.17.23."""
    tiny = 1e-300
    value = c = 1.0
    d = 0.0
    for n in range(1, 100_000):
        m = n // 2
        if n % 2:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / ((1.0 + step * d) or tiny)
        c = (1.0 + step / c) or tiny
        value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
