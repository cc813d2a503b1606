"""Budgets and usage over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, get_args

from fastapi import APIRouter, Query
from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.api_route import ApiRoute
from apps.memory_api.budget.guard import figures, start_of
from apps.memory_api.budget.queries import list_budgets, replace_budgets, sum_spent, sum_usage
from apps.memory_api.budget.schemas import (
    BUDGETS,
    BudgetsIn,
    BudgetView,
    UsageKey,
    UsageRow,
)
from apps.memory_api.budget.tables import BudgetRow
from apps.memory_api.core.errors import Forbidden, Invalid
from apps.memory_api.core.openapi import example
from apps.memory_api.core.schemas import Page, Time
from apps.memory_api.deps import Admin, Reader, Session

router = APIRouter(prefix="/api/v1", tags=["account"], route_class=ApiRoute)

LOOKED_BACK = timedelta(days=30)


@router.get("/budgets")
async def all_budgets(session: Session, caller: Reader) -> Page[BudgetView]:
    """What the tenant may spend on models, and what of it is left."""
    return await _show(session)


@router.put("/budgets", openapi_extra=example(BUDGETS))
async def set_budgets(body: BudgetsIn, session: Session, caller: Admin) -> Page[BudgetView]:
    """Set all budgets of the tenant. A call that could cost more than what is left is refused with
    402 and the figures; an empty list sets no limit.
    """
    if caller.project_id is not None:
        raise Forbidden("A budget is the whole tenant's; this key is one project's.")
    await replace_budgets(
        session,
        [
            BudgetRow(
                tenant_id=caller.tenant_id,
                period=item.period,
                usd=Decimal(str(item.usd)),
                allow_unknown_price=item.allow_unknown_price,
            )
            for item in body.items
        ],
    )
    return await _show(session)


@router.get("/usage")
async def usage(
    session: Session,
    caller: Reader,
    by: Annotated[
        str, Query(description="day, model, provider, purpose; several with commas.")
    ] = "day",
    since: Annotated[Time | None, Query(description="30 days ago by default.")] = None,
    until: Annotated[Time | None, Query(description="Not included; now by default.")] = None,
) -> Page[UsageRow]:
    """What was asked of models, and what it cost, from the ledger of every attempt."""
    keys = list(dict.fromkeys(part for part in by.split(",") if part))
    if not keys or not set(keys) <= set(get_args(UsageKey)):
        raise Invalid(f"Any of {', '.join(get_args(UsageKey))}.", field="by")
    rows = await sum_usage(session, keys, since or datetime.now(UTC) - LOOKED_BACK, until)
    return Page[UsageRow](items=[UsageRow(**row) for row in rows])


async def _show(session: AsyncSession) -> Page[BudgetView]:
    now = datetime.now(UTC)
    views: list[BudgetView] = []
    for budget in await list_budgets(session):
        spent = await sum_spent(session, start_of(budget.period, now))
        shown = figures(budget, spent, now)
        views.append(
            BudgetView.model_validate(shown | {"allow_unknown_price": budget.allow_unknown_price})
        )
    return Page[BudgetView](items=views)
