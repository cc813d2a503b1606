"""Whether agents get better with advice: the sentence that the console and `hansei top` begin with.

The figures and intervals are those of `analytics.improvement`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

WEEKS = 12
"""Weeks that the question is about, wherever nobody sets a period. The view has the same."""
TARGET = 0.10
"""The difference that enough runs would show: the half width of the interval, 0 to 1."""
RECENT_WEEKS = 2
"""The calendar weeks of a trend that are compared with those before. The last is not over."""
MIN_RUNS = 10
"""Runs of each side below which no shares are compared."""
_Z = 1.959963984540054


@dataclass(frozen=True)
class Improvement:
    """`weeks` are the rows of the project by week, `total` is the row of the whole period."""

    weeks: Sequence[Mapping[str, Any]]
    total: Mapping[str, Any] | None
    share: float
    """HANSEI_ADVICE_HOLDOUT_SHARE, or the share that the runs show."""

    @property
    def answer(self) -> Literal["no_runs", "no_holdout", "more_runs", "better", "worse", "same"]:
        """`same`: any difference is below `TARGET`."""
        total = self.total
        if total is None or not total["runs"]:
            return "no_runs"
        if not (total["with_runs"] or total["without_runs"]):
            return "more_runs" if self.share else "no_holdout"
        if min(total["with_runs"], total["without_runs"]) >= MIN_RUNS:
            if total["low"] > 0:
                return "better"
            if total["high"] < 0:
                return "worse"
        return "more_runs" if self.missing_runs else "same"

    @property
    def missing_runs(self) -> int:
        """About how many more runs show a difference of `TARGET`, at the share of the hold-out."""
        total = self.total or {}
        with_runs, without_runs = total.get("with_runs", 0), total.get("without_runs", 0)
        present = with_runs + without_runs
        share = without_runs / present if with_runs and without_runs else self.share or 0.5
        share = min(max(share, 0.01), 0.99)
        spread = _variance(total.get("with_rate"), with_runs) / (1 - share)
        spread += _variance(total.get("without_rate"), without_runs) / share
        needed = math.ceil(_Z**2 * spread / TARGET**2)
        least = math.ceil(MIN_RUNS / min(share, 1 - share))
        return max(0, max(needed, least) - present)


def first_week(now: datetime) -> date:
    """The Monday of the first of the last `WEEKS` weeks."""
    return now.date() - timedelta(days=now.weekday(), weeks=WEEKS - 1)


def improvement_of(rows: Sequence[Mapping[str, Any]], share: float) -> Improvement:
    """`rows` answer the question `improvement`; those of all playbooks are used."""
    whole = [row for row in rows if row["playbook"] is None]
    total = next((row for row in whole if row["week"] is None), None)
    return Improvement([row for row in whole if row["week"] is not None], total, share)


@dataclass(frozen=True)
class PlaybookTrend:
    """Runs and successes of a playbook: with advice, since the Monday `recent_start` and before,
    and of controls. Without a hold-out, all runs count as runs with advice.
    """

    recent_start: date
    recent: tuple[int, int]
    earlier: tuple[int, int]
    controls: tuple[int, int]

    @property
    def advised(self) -> tuple[int, int]:
        return self.recent[0] + self.earlier[0], self.recent[1] + self.earlier[1]


def trends_of(rows: Sequence[Mapping[str, Any]], now: datetime) -> dict[str, PlaybookTrend]:
    """Playbook → its trend. `rows` answer the question `improvement`."""
    first = first_week(now) + timedelta(weeks=WEEKS - RECENT_WEEKS)
    names = {row["playbook"] for row in rows if row["playbook"] is not None}

    def sum_up(own: Sequence[Mapping[str, Any]], runs: str, successes: str) -> tuple[int, int]:
        return sum(row[runs] for row in own), sum(row[successes] for row in own)

    trends: dict[str, PlaybookTrend] = {}
    for name in sorted(names):
        own = [row for row in rows if row["playbook"] == name and row["week"] is not None]
        controls = sum_up(own, "without_runs", "without_successes")
        columns = ("with_runs", "with_successes") if controls[0] else ("runs", "successes")
        recent = [row for row in own if row["week"] >= first]
        earlier = [row for row in own if row["week"] < first]
        counts = sum_up(recent, *columns), sum_up(earlier, *columns), controls
        trends[name] = PlaybookTrend(first, *counts)
    return trends


def _variance(rate: float | None, runs: int) -> float:
    """Of one outcome. A share of few runs is not trusted: it is taken as one half."""
    p = 0.5 if rate is None or runs < MIN_RUNS else rate
    return max(p * (1 - p), 0.05)
