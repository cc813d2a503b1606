"""Reserves the maximum cost of a model call before it, and settles the actual cost after it.

Totals per day and month exist for the tenant, each project, each purpose, and each purpose of a
project, whether there is a budget or not: a budget that is set in the middle of a month includes
the days before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import structlog
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets import queries
from memory_api.budgets.queries import ReservedCost, Spending, TotalKey
from memory_api.budgets.tables import BudgetReservationRow, BudgetRow
from memory_api.core.db import current_tenant_id
from memory_api.core.ids import new_id
from memory_api.core.metrics import BUDGET_LEVELS, BUDGET_REFUSALS
from memory_api.llm.errors import LLMOverBudget, LLMUnpriced
from memory_api.llm.port import TokenUsage

log = structlog.get_logger(__name__)

RESERVATION_TTL = timedelta(minutes=15)
"""After this time the process that made a reservation has ended, or cannot reach the database."""
PERIODS = ("day", "month")


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The maximum usage and cost of a call. `usd` is None for an unknown price."""

    provider: str
    model: str
    purpose: str
    tenant_id: UUID | None
    run_id: UUID | None
    usage: TokenUsage
    usd: Decimal | None
    project_id: str | None = None


async def reserve(session: AsyncSession, estimate: CostEstimate, now: datetime) -> UUID:
    """Reserve the estimate in all totals. Raises `LLMOverBudget` or `LLMUnpriced`; the caller must
    then roll back.

    The rows of the totals are locked until the transaction ends, so concurrent calls cannot
    overspend together.
    """
    budgets = [b for b in await queries.list_budgets(session) if _applies(b, estimate)]
    _check_price(budgets, estimate)
    tokens = total_tokens(estimate.usage)
    reservation_id = new_id()
    reservation = {
        "tenant_id": current_tenant_id(session),
        "id": reservation_id,
        "run_id": estimate.run_id,
        "project_id": estimate.project_id or "",
        "provider": estimate.provider,
        "model": estimate.model,
        "purpose": estimate.purpose,
        "amount_usd": estimate.usd,
        "amount_tokens": tokens,
        "created_at": now,
        "expires_at": now + RESERVATION_TTL,
    }
    await queries.insert_reservation(session, reservation)
    keys = total_keys(now, estimate.project_id or "", estimate.purpose)
    reserved = Spending(reserved_usd=estimate.usd or Decimal(0), reserved_tokens=tokens)
    # Last, because other calls of the tenant wait for these rows.
    totals = await queries.add_to_totals(session, dict.fromkeys(keys, reserved))
    for budget in budgets:
        spending = totals[budget_key(budget, now)]
        _report_level(budget, spending, now)
        if is_exceeded(budget, spending):
            BUDGET_REFUSALS.labels(LLMOverBudget.code).inc()
            raise _over_budget(budget, spending.plus(reserved.negated()), estimate, now)
    return reservation_id


async def settle(
    session: AsyncSession, reservation_id: UUID, usd: Decimal | None, tokens: int
) -> dict[TotalKey, Spending]:
    """Replace the reserved amount by the actual cost. Returns the new totals; none if the
    reservation is settled already. Corrects a reservation that was settled because it expired.
    """
    before = await queries.settle_reservation(session, reservation_id, usd=usd, tokens=tokens)
    if before is None:
        return {}
    booked = _amount(before, spent=before.is_expired)
    actual = Spending(spent_usd=usd or Decimal(0), spent_tokens=tokens)
    keys = total_keys(before.created_at, before.project_id, before.purpose)
    change = actual.plus(booked.negated())
    return await queries.add_to_totals(session, dict.fromkeys(keys, change))


async def settle_expired(session: AsyncSession, now: datetime) -> int:
    """Settle expired reservations with their maximum: the provider may have charged the calls.
    Returns their number.
    """
    rows = await queries.lock_expired_reservations(session, now)
    changes: dict[TotalKey, Spending] = {}
    for row in rows:
        log.warning(
            "reservation_expired",
            tenant_id=str(row.tenant_id),
            run_id=str(row.run_id) if row.run_id else None,
            usd=float(row.amount_usd) if row.amount_usd is not None else None,
        )
        await queries.update_reservation(
            session, row.id, usd=row.amount_usd, tokens=row.amount_tokens, is_expired=True
        )
        change = _amount(row, spent=True).plus(_amount(row, spent=False).negated())
        for key in total_keys(row.created_at, row.project_id, row.purpose):
            changes[key] = changes.get(key, Spending()).plus(change)
    if changes:
        await queries.add_to_totals(session, changes)
    return len(rows)


def total_keys(when: datetime, project_id: str, purpose: str) -> list[TotalKey]:
    """The totals that a call at this time belongs to."""
    return [
        TotalKey(period, period_start(period, when).date(), project, name)
        for period in PERIODS
        for project in {"", project_id}
        for name in {"", purpose}
    ]


def budget_key(budget: BudgetRow, now: datetime) -> TotalKey:
    """The total that a budget limits now."""
    starts_on = period_start(budget.period, now).date()
    return TotalKey(budget.period, starts_on, budget.project_id, budget.purpose)


def is_exceeded(budget: BudgetRow, spending: Spending) -> bool:
    """Whether spent and reserved amounts together are over a limit of the budget."""
    usd = spending.spent_usd + spending.reserved_usd
    tokens = spending.spent_tokens + spending.reserved_tokens
    return (budget.limit_usd is not None and usd > budget.limit_usd) or (
        budget.limit_tokens is not None and tokens > budget.limit_tokens
    )


def total_tokens(usage: TokenUsage) -> int:
    return usage.input_tokens + usage.output_tokens


def _amount(row: BudgetReservationRow | ReservedCost, *, spent: bool) -> Spending:
    usd, tokens = row.amount_usd or Decimal(0), row.amount_tokens
    if spent:
        return Spending(spent_usd=usd, spent_tokens=tokens)
    return Spending(reserved_usd=usd, reserved_tokens=tokens)


def _applies(budget: BudgetRow, estimate: CostEstimate) -> bool:
    return budget.project_id in ("", estimate.project_id) and budget.purpose in (
        "",
        estimate.purpose,
    )


def _check_price(budgets: Sequence[BudgetRow], estimate: CostEstimate) -> None:
    for budget in budgets:
        if estimate.usd is None and budget.limit_usd is not None and not budget.allow_unknown_price:
            BUDGET_REFUSALS.labels(LLMUnpriced.code).inc()
            raise LLMUnpriced(
                f"No known price for model {estimate.model} (provider {estimate.provider}),"
                f" and {describe_budget(budget)} does not allow unpriced calls.",
                figures={"period": budget.period, "model": estimate.model},
                allows_rules=budget.when_spent == "rules",
            )


def _over_budget(
    budget: BudgetRow, spending: Spending, estimate: CostEstimate, now: datetime
) -> LLMOverBudget:
    status = budget_status(budget, spending, now)
    usd, tokens = estimate.usd, total_tokens(estimate.usage)
    left: list[str] = []
    needed: list[str] = []
    if budget.limit_usd is not None:
        free = budget.limit_usd - spending.spent_usd - spending.reserved_usd
        left.append(f"{_dollars(max(free, Decimal(0)))} of {_dollars(budget.limit_usd)}")
        needed.append(_dollars(usd or Decimal(0)))
    if budget.limit_tokens is not None:
        left.append(f"{status['left_tokens']} of {budget.limit_tokens} tokens")
        needed.append(f"{tokens} tokens")
    name = describe_budget(budget)
    return LLMOverBudget(
        f"{name[0].upper()}{name[1:]} does not cover this call: {' and '.join(left)} left, and the"
        f" call may need up to {' and '.join(needed)}.",
        retry_after=(period_end(budget.period, now) - now).total_seconds(),
        figures=status | {"asked_usd": None if usd is None else float(usd), "asked_tokens": tokens},
        allows_rules=budget.when_spent == "rules",
    )


def _dollars(amount: Decimal) -> str:
    """For example "$0.00005" or "$5"."""
    return "$" + (f"{amount:.6f}".rstrip("0").rstrip("."))


def describe_budget(budget: BudgetRow) -> str:
    """For example "the budget of the day for purpose reflect in project p"."""
    purpose = f" for purpose {budget.purpose}" if budget.purpose else ""
    project = f" in project {budget.project_id}" if budget.project_id else ""
    return f"the budget of the {budget.period}{purpose}{project}"


def _report_level(budget: BudgetRow, spending: Spending, now: datetime) -> None:
    """Report the share of a budget in dollars that is left to the metrics."""
    if budget.limit_usd is None:
        return
    left = max(budget.limit_usd - spending.spent_usd - spending.reserved_usd, Decimal(0))
    share = float(left / budget.limit_usd) if budget.limit_usd else 0.0
    BUDGET_LEVELS.record(budget.tenant_id, budget.period, share, period_end(budget.period, now))


def budget_status(budget: BudgetRow, spending: Spending, now: datetime) -> dict[str, object]:
    """The current state of a budget. What has no limit has null as its limit and its rest."""
    usd = spending.spent_usd + spending.reserved_usd
    tokens = spending.spent_tokens + spending.reserved_tokens
    limit_usd, limit_tokens = budget.limit_usd, budget.limit_tokens
    return {
        "period": budget.period,
        "project_id": budget.project_id or None,
        "purpose": budget.purpose or None,
        "limit_usd": None if limit_usd is None else float(limit_usd),
        "limit_tokens": limit_tokens,
        "spent_usd": float(spending.spent_usd),
        "reserved_usd": float(spending.reserved_usd),
        "left_usd": None if limit_usd is None else float(max(limit_usd - usd, 0)),
        "spent_tokens": spending.spent_tokens,
        "reserved_tokens": spending.reserved_tokens,
        "left_tokens": None if limit_tokens is None else max(limit_tokens - tokens, 0),
        "resets_at": period_end(budget.period, now).isoformat(),
    }


def period_start(period: str, now: datetime) -> datetime:
    """The start of the day or month of `now`, in UTC."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if period == "day" else day.replace(day=1)


def period_end(period: str, now: datetime) -> datetime:
    """The start of the next day or month, in UTC."""
    start = period_start(period, now)
    if period == "day":
        return start + timedelta(days=1)
    return (start + timedelta(days=32)).replace(day=1)
