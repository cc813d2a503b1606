"""When an outcome says something of a bullet: attempts of one task with it against those without.

In a domain where most runs fail, a failure says nothing of the bullets that were served. So an
outcome moves a counter only where, within one task,

    at least LEAST attempts ended with the bullet and LEAST without it, and
    a larger share of them succeeded with it (or a smaller one), and that is SURE: the chance that
    the success rate with it is higher (lower) than without it, 0..1

both rates with a uniform prior, which makes them Beta(1 + won, 1 + lost). Then only so many
outcomes count as the attempts without the bullet do not explain:

    helpful  floor(won with it  - attempts with it x rate without it), at least one
    harmful  floor(lost with it - attempts with it x failure rate without it), at least one

with the rate without it taken as (1 + won) / (2 + attempts). Which of the successes (or failures)
they are is drawn by a hash of the trace's id, so that the same group always gives the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from apps.memory_api.playbook.schemas import Vote

LEAST = 2
SURE = 0.9


@dataclass(frozen=True, slots=True)
class Sides:
    """Attempts of one task that ended in success or failure, with a bullet and without it."""

    with_n: int
    with_won: int
    without_n: int
    without_won: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """`many` of the outcomes with tag `tag` count, of the attempts with the bullet."""

    tag: Vote
    many: int


NOTHING = Confirmed("neutral", 0)


def contrast(sides: Sides) -> Confirmed:
    """What the attempts of one task say of a bullet."""
    if min(sides.with_n, sides.without_n) < LEAST:
        return NOTHING
    better = chance_better(sides)
    # Shares by cross-multiplying: the prior alone must not turn two of two into a disadvantage.
    ahead = sides.with_won * sides.without_n - sides.without_won * sides.with_n
    usual = (1 + sides.without_won) / (2 + sides.without_n)
    if better >= SURE and ahead > 0:
        extra = sides.with_won - sides.with_n * usual
        return Confirmed("helpful", _whole(extra, sides.with_won))
    if better <= 1 - SURE and ahead < 0:
        lost = sides.with_n - sides.with_won
        return Confirmed("harmful", _whole(lost - sides.with_n * (1 - usual), lost))
    return NOTHING


def _whole(extra: float, most: int) -> int:
    return min(most, max(1, math.floor(extra + 1e-9)))


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
