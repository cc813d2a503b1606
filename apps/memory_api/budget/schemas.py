"""Budgets and usage on the wire. Money is US dollars."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

from pydantic import Field, model_validator

from apps.memory_api.core.openapi import shown
from apps.memory_api.core.schemas import Model, TenantBody, Time

Period = Literal["day", "month"]
UsageKey = Literal["day", "model", "provider", "purpose"]


class BudgetIn(Model):
    """A limit of calls to models in one period of UTC."""

    period: Period
    usd: float = Field(ge=0, le=1e9, allow_inf_nan=False, description="0 allows no call.")
    allow_unknown_price: bool = Field(
        False, description="Whether a model that nobody knows the price of may be called."
    )


class BudgetsIn(TenantBody):
    """All budgets of the tenant; one that is left out is gone."""

    items: list[BudgetIn] = Field(max_length=2)

    @model_validator(mode="after")
    def _one_each(self) -> BudgetsIn:
        if len({item.period for item in self.items}) < len(self.items):
            raise ValueError("one budget a period")
        return self


BUDGETS: dict[str, Any] = {
    "items": [
        {"period": "day", "usd": 5.0, "allow_unknown_price": False},
        {"period": "month", "usd": 80.0, "allow_unknown_price": False},
    ]
}


class BudgetView(BudgetIn):
    """A budget as it stands: what was spent, and what is set aside for calls under way."""

    model_config = shown(
        {
            "period": "day",
            "usd": 5.0,
            "allow_unknown_price": False,
            "spent_usd": 1.25,
            "reserved_usd": 0.02,
            "left_usd": 3.73,
            "resets_at": "2026-11-22T00:00:00Z",
        }
    )

    spent_usd: float
    reserved_usd: float
    left_usd: float
    resets_at: Time


class UsageRow(Model):
    """Sums of the ledger. `input_tokens` includes the cached ones; `unpriced` calls were answered
    by models that nobody knows the price of.
    """

    model_config = shown(
        {
            "day": "2026-11-21",
            "model": "gpt-4o-mini",
            "provider": None,
            "purpose": None,
            "calls": 12,
            "failed": 1,
            "unpriced": 0,
            "input_tokens": 48000,
            "cached_tokens": 20480,
            "cache_write_tokens": 0,
            "output_tokens": 3100,
            "usd": 0.0075,
        }
    )

    day: date | None = None
    model: str | None = None
    provider: str | None = None
    purpose: str | None = None
    calls: int
    failed: int
    unpriced: int
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    usd: float
