"""Ratings in the ground truth or the metadata of a trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

RATING_FIELDS = ("satisfaction", "helpfulness", "rating", "stars", "csat")
MAX_RATING = 5
"""The best rating in `RATING_FIELDS`; 1 is the worst."""


def find_ratings(source: Mapping[str, Any]) -> dict[str, float]:
    """The ratings from 1 to `MAX_RATING` under the documented names."""
    numbers = {name: number_of(source.get(name)) for name in RATING_FIELDS}
    return {
        name: number
        for name, number in numbers.items()
        if number is not None and 1 <= number <= MAX_RATING
    }


def number_of(value: Any) -> float | None:
    """The value if it is a number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return None
    return float(value)
