"""Budgets and model usage on the wire. Money is in US dollars."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal
from uuid import UUID

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from memory_api.core.schemas import (
    Page,
    ResponseModel,
    TenantRequest,
    UtcDatetime,
    with_examples,
)

Period = TypeAliasType("Period", Literal["day", "month"])
UsageDimension = TypeAliasType(
    "UsageDimension",
    Literal["day", "model", "provider", "purpose", "project_id", "playbook", "lesson_id"],
)


Purpose = Literal[
    "reflect",
    "curate",
    "consolidate",
    "evaluate",
    "workflow",
    "dreaming",
    "session_summary",
    "grace_plan",
    "grace_act",
    "grace_answer",
    "grace_judge",
]
"""What the service calls models for."""


class BudgetLimit(ResponseModel):
    """A limit on model calls in one period, in US dollars, tokens, or both.

    It limits the tenant, one project, one purpose, or one purpose in one project. A call must fit
    all budgets that apply to it. Periods start at midnight UTC.
    """

    period: Period
    project_id: str | None = Field(
        default=None, min_length=1, max_length=128, description="Project. Null: all projects."
    )
    purpose: Purpose | None = Field(
        default=None, description="What the model is called for. Null: all purposes."
    )
    limit_usd: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        allow_inf_nan=False,
        description="Limit in US dollars. 0 allows no call. Null: no limit in dollars.",
    )
    limit_tokens: int | None = Field(
        default=None,
        ge=0,
        le=10**15,
        description="Limit of input and output tokens together. Null: no limit in tokens.",
    )
    allow_unknown_price: bool = Field(
        default=False, description="Whether models without a known price may be called."
    )
    when_spent: Literal["refuse", "rules"] = Field(
        default="refuse",
        description="`refuse`: a request that waits gets 402, and background runs wait until the"
        " budget allows them. `rules`: the rules engine replaces the model.",
    )


class ReplaceBudgetsRequest(TenantRequest):
    """All budgets of the tenant. A budget that is not in the list is removed."""

    items: list[BudgetLimit] = Field(max_length=200)

    @model_validator(mode="after")
    def _check_items(self) -> ReplaceBudgetsRequest:
        if any(item.limit_usd is None and item.limit_tokens is None for item in self.items):
            raise ValueError("Each budget needs US dollars (`limit_usd`), `limit_tokens`, or both.")
        if len({(i.period, i.project_id, i.purpose) for i in self.items}) < len(self.items):
            raise ValueError("Two budgets have the same period, project and purpose.")
        return self


BUDGETS_EXAMPLE: dict[str, Any] = {
    "items": [
        {"period": "day", "limit_usd": 5.0, "allow_unknown_price": False},
        {"period": "month", "project_id": "support", "limit_usd": 80.0},
        {"period": "day", "purpose": "evaluate", "limit_tokens": 200000, "when_spent": "rules"},
    ]
}


class BudgetAlert(ResponseModel):
    """A threshold that a budget reached in the current period."""

    percent: Literal[80, 90, 95]
    unit: Literal["usd", "tokens"]
    created_at: UtcDatetime


class Budget(BudgetLimit):
    """A budget and its current state."""

    model_config = with_examples(
        {
            "period": "day",
            "project_id": None,
            "purpose": None,
            "limit_usd": 5.0,
            "limit_tokens": None,
            "allow_unknown_price": False,
            "when_spent": "refuse",
            "spent_usd": 4.1,
            "reserved_usd": 0.02,
            "left_usd": 0.88,
            "spent_tokens": 512000,
            "reserved_tokens": 6000,
            "left_tokens": None,
            "resets_at": "2026-11-22T00:00:00Z",
            "alerts": [{"percent": 80, "unit": "usd", "created_at": "2026-11-21T17:04:00Z"}],
        }
    )

    spent_usd: float = Field(description="Cost of the finished calls of this period.")
    reserved_usd: float = Field(description="Reserved for calls that are being executed.")
    left_usd: float | None = Field(description="Null without a limit in dollars.")
    spent_tokens: int
    reserved_tokens: int
    left_tokens: int | None = Field(description="Null without a limit in tokens.")
    resets_at: UtcDatetime = Field(description="When the next period starts.")
    alerts: list[BudgetAlert] = Field(description="Thresholds that were reached in this period.")


class BudgetPage(Page[Budget]):
    """All budgets that the key may see."""


class Usage(ResponseModel):
    """Sums of model calls. A dimension that was not asked for is null."""

    model_config = with_examples(
        {
            "day": "2026-11-21",
            "model": "gpt-4o-mini",
            "provider": None,
            "purpose": None,
            "project_id": None,
            "playbook": None,
            "lesson_id": None,
            "call_count": 12,
            "failed_count": 1,
            "unpriced_count": 0,
            "input_tokens": 48000,
            "cached_tokens": 20480,
            "cache_write_tokens": 0,
            "output_tokens": 3100,
            "cost_usd": 0.0075,
        }
    )

    day: date | None = None
    model: str | None = None
    provider: str | None = None
    purpose: str | None = Field(
        default=None, description="What the call was for, such as `reflect`."
    )
    project_id: str | None = None
    playbook: str | None = Field(
        default=None, description="The playbook that the call was made for. Null: none."
    )
    lesson_id: UUID | None = Field(
        default=None,
        description="A memory. The calls for its trace are divided among the lessons of the trace.",
    )
    call_count: int
    failed_count: int
    unpriced_count: int = Field(description="Answered calls of models without a known price.")
    input_tokens: int = Field(description="Includes `cached_tokens`.")
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    cost_usd: float = Field(description="Cost of the calls with a known price.")


class UsagePage(Page[Usage]):
    """Sums of model calls."""
