"""The days that pages count, in UTC: today is the last one."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

MONTH_DAYS = 30
"""The period of costs, effects and answers of analytics, unless somebody chooses another."""


def today() -> date:
    return datetime.now(UTC).date()


def last_days(count: int) -> list[date]:
    """The last days, today included, oldest first."""
    return [today() - timedelta(days=number) for number in reversed(range(count))]


def mondays(first: date) -> list[date]:
    """The Mondays from `first` to that of this week."""
    return [first + timedelta(weeks=n) for n in range((today() - first).days // 7 + 1)]


def midnight(day: date) -> datetime:
    """The start of a day."""
    return datetime.combine(day, time(), UTC)
