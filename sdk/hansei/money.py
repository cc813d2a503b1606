"""What calls of models may cost and did cost: routes and shapes. Money is US dollars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from hansei.answers import Page
from hansei.request import API, Request, read, write

Period = Literal["day", "month"]


class BudgetLimit(TypedDict):
    """A limit of one period; `allow_unknown_price` lets models be called that nobody knows the
    price of.
    """

    period: Period
    usd: float
    allow_unknown_price: NotRequired[bool]


class Budget(TypedDict):
    """A budget as it stands."""

    period: Period
    usd: float
    allow_unknown_price: bool
    spent_usd: float
    reserved_usd: float
    left_usd: float
    resets_at: str


class Usage(TypedDict):
    """Sums of the ledger; the fields it was not asked to be split by are null."""

    day: str | None
    model: str | None
    provider: str | None
    purpose: str | None
    calls: int
    failed: int
    unpriced: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    usd: float


def budgets() -> Request[Page[Budget]]:
    """What your tenant may spend on models, and what of it is left."""
    return read(f"{API}/budgets")


def set_budgets(limits: Sequence[BudgetLimit]) -> Request[Page[Budget]]:
    """Set all budgets of your tenant; one that is left out is gone."""
    return write("PUT", f"{API}/budgets", {"items": list(limits)})


def usage(
    by: Sequence[str] = ("day",), *, since: str | None = None, until: str | None = None
) -> Request[Page[Usage]]:
    """What was asked of models and what it cost, by day, model, provider or purpose; the last 30
    days unless told otherwise.
    """
    return read(f"{API}/usage", by=",".join(by), since=since, until=until)
