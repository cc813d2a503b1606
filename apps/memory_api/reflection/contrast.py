"""When an outcome says something of a bullet: attempts of one task with it against those without.

In a domain where most runs fail, a failure says nothing of the bullets that were served. So an
outcome moves a counter only where, within one task,

    at least LEAST attempts ended with the bullet and LEAST without it,
    a larger share of them succeeded with it (or a smaller one), and
    that is SURE: the chance that the success rate with it is higher (lower) than without it, 0..1,
    both rates with a uniform prior, which makes them Beta(1 + won, 1 + lost).

Then one success (or failure) of the attempts with the bullet counts: one comparison is one vote,
however many attempts it took. More would not be independent: by chance alone, a task with a lucky
streak would give three votes at once. Which attempt's outcome it is, a hash of its id decides, so
that the same attempts always give the same answer. SURE is high because there are many tasks, and
each may err: docs/decisions/counting.md has the figures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from apps.memory_api.playbook.schemas import Vote

LEAST = 2
SURE = 0.99


@dataclass(frozen=True, slots=True)
class Sides:
    """Attempts of one task that ended in success or failure, with a bullet and without it."""

    with_n: int
    with_won: int
    without_n: int
    without_won: int


def contrast(sides: Sides) -> Vote | None:
    """The tag of the outcome that counts, or None when the attempts say nothing of the bullet."""
    if min(sides.with_n, sides.without_n) < LEAST:
        return None
    better = chance_better(sides)
    # Shares by cross-multiplying: the prior alone must not turn two of two into a disadvantage.
    ahead = sides.with_won * sides.without_n - sides.without_won * sides.with_n
    if better >= SURE and ahead > 0:
        return "helpful"
    return "harmful" if better <= 1 - SURE and ahead < 0 else None


def chance_better(sides: Sides) -> float:
    """P(X > Y) for X ~ Beta(1 + won, 1 + lost) with the bullet and Y likewise without it, 0..1.

    The sum over i < a of B(c + i, b + d) / ((b + i) B(1 + i, b) B(c, d)) for X ~ Beta(a, b) and
    Y ~ Beta(c, d) with whole parameters, by partial integration of the beta densities.
    """
    a, b = 1 + sides.with_won, 1 + sides.with_n - sides.with_won
    c, d = 1 + sides.without_won, 1 + sides.without_n - sides.without_won
    terms = (
        _log_beta(c + i, b + d) - math.log(b + i) - _log_beta(1 + i, b) - _log_beta(c, d)
        for i in range(a)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
