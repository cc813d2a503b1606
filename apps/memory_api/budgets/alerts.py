"""Alerts: a budget has reached 80, 90 or 95 % of its limit. Each is raised once per period."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets.queries import Spending, TotalKey, insert_alerts
from memory_api.budgets.reservations import budget_key
from memory_api.budgets.tables import BudgetAlertRow, BudgetRow
from memory_api.core.db import current_tenant_id

THRESHOLDS = (80, 90, 95)
"""Percent of a limit."""


async def raise_alerts(
    session: AsyncSession,
    budgets: Iterable[BudgetRow],
    totals: Mapping[TotalKey, Spending],
    now: datetime,
) -> Sequence[BudgetAlertRow]:
    """Store an alert for each threshold that these totals have reached. Returns the new ones. Only
    settled costs count.
    """
    rows: list[dict[str, Any]] = []
    for budget in budgets:
        key = budget_key(budget, now)
        if key in totals:
            common = {"tenant_id": current_tenant_id(session), **key._asdict()}
            rows += [common | fields for fields in _reached(budget, totals[key])]
    return await insert_alerts(session, rows) if rows else ()


def _reached(budget: BudgetRow, spending: Spending) -> Iterator[dict[str, Any]]:
    amounts = (
        ("usd", budget.limit_usd, spending.spent_usd),
        ("tokens", budget.limit_tokens, spending.spent_tokens),
    )
    for unit, limit, spent in amounts:
        for percent in THRESHOLDS:
            if limit and spent * 100 >= limit * percent:
                yield {
                    "unit": unit,
                    "percent": percent,
                    "limit_amount": Decimal(limit),
                    "spent_amount": Decimal(spent),
                }
