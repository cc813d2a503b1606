"""How useful a bullet surely is: a lower bound, so that one lucky vote does not lead."""

from __future__ import annotations

import math
from functools import lru_cache

SURE = 0.05
"""The chance of being less useful than `usefulness` says."""
_Z = 1.6448536269514722
_MANY = 100_000
"""Votes from which the normal approximation is exact to 1e-4 and the exact way slow."""


@lru_cache(maxsize=16_384)
def usefulness(helpful: int, harmful: int) -> float:
    """5th percentile of Beta(1 + helpful, 1 + harmful), 0..1; .05 for an unrated bullet."""
    a, b = 1 + helpful, 1 + harmful
    if a + b > _MANY and min(a, b) > 1_000:
        mean = a / (a + b)
        return mean - _Z * math.sqrt(mean * (1 - mean) / (a + b + 1))
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if beta_cdf(middle, a, b) < SURE:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, 9)


def does_harm(helpful: int, harmful: int) -> bool:
    """Whether it is 95 % sure that the bullet harms more often than it helps."""
    return usefulness(harmful, helpful) > 0.5


HARMED = 3
"""Harmful verdicts below which no bullet is quarantined."""


def base_rate(helpful: int, harmful: int) -> float:
    """The share of harm in the summed counters of a playbook's other bullets, 0..1; 0 without."""
    total = helpful + harmful
    return harmful / total if total else 0.0


def should_quarantine(helpful: int, harmful: int, base_rate: float) -> bool:
    """Whether a bullet is to be served no more: it harmed three times or more, more often than it
    helped, and more often than is usual in its playbook.
    """
    return harmful >= HARMED and harmful > helpful and harmful / (helpful + harmful) > base_rate


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 < x < 1 and a, b > 0.

    Source: DLMF 8.17.22, the continued fraction, evaluated by Lentz's method; 8.17.4 turns x to the
    side where it converges fast.
    """
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
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
