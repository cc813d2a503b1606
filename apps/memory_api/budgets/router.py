"""Budgets and model usage over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BeforeValidator
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.api.deps import (
    Admin,
    ProjectQuery,
    Reader,
    Session,
    default_start,
    project_filter,
    require_whole_tenant,
)
from memory_api.api.route import ApiRoute
from memory_api.budgets import queries
from memory_api.budgets.queries import Spending, TotalKey
from memory_api.budgets.reservations import budget_key, budget_status, period_start
from memory_api.budgets.schemas import (
    BUDGETS_EXAMPLE,
    Budget,
    BudgetAlert,
    BudgetPage,
    ReplaceBudgetsRequest,
    Usage,
    UsageDimension,
    UsagePage,
)
from memory_api.budgets.tables import BudgetRow
from memory_api.budgets.usage import LESSON, UsageFilter, list_lesson_costs, sum_usage
from memory_api.core.errors import InvalidRequest
from memory_api.core.schemas import UtcDatetime, body_example, split_commas
from memory_api.tenants.audit_log import record_audit_event

router = APIRouter(prefix="/api/v1", tags=["budgets"], route_class=ApiRoute)

GroupByQuery = Annotated[
    Sequence[UsageDimension],
    BeforeValidator(split_commas),
    Query(min_length=1, description="Sums are made for each combination of these values."),
]


@router.get("/budgets", summary="List budgets")
async def list_budgets(session: Session, caller: Reader) -> BudgetPage:
    """Lists the limits on model calls, with what is spent, reserved and left.

    A key bound to one project sees the budgets of this project only.
    """
    return await _load_budgets(session, caller.project_id)


@router.put("/budgets", summary="Replace all budgets", openapi_extra=body_example(BUDGETS_EXAMPLE))
async def replace_budgets(
    body: ReplaceBudgetsRequest, session: Session, caller: Admin
) -> BudgetPage:
    """Replaces all budgets of the tenant. An empty list removes every limit.

    A model call that could cost more than what is left is refused with 402, or replaced by the
    rules engine, as `when_spent` says. Answers 403 for a key bound to one project.
    """
    require_whole_tenant(caller)
    rows = [
        BudgetRow(
            tenant_id=caller.tenant_id,
            period=item.period,
            project_id=item.project_id or "",
            purpose=item.purpose or "",
            limit_usd=None if item.limit_usd is None else Decimal(str(item.limit_usd)),
            limit_tokens=item.limit_tokens,
            allow_unknown_price=item.allow_unknown_price,
            when_spent=item.when_spent,
        )
        for item in body.items
    ]
    await queries.replace_budgets(session, rows)
    details = {"items": [item.model_dump(mode="json") for item in body.items]}
    await record_audit_event(session, "budgets.replaced", "budgets", details)
    return await _load_budgets(session, None)


@router.get("/usage", summary="List model usage")
async def list_usage(
    session: Session,
    caller: Reader,
    project_id: ProjectQuery,
    group_by: GroupByQuery = ("day",),
    since: Annotated[
        UtcDatetime | None,
        Query(description="Start, included. Default: midnight (UTC) 30 days before `until`."),
    ] = None,
    until: Annotated[UtcDatetime | None, Query(description="End, excluded. Default: now.")] = None,
) -> UsagePage:
    """Sums the model calls by day, model, provider, purpose, project or playbook, with their cost.

    `group_by=lesson_id`, without others, lists what each lesson has cost, most expensive first.
    Failed attempts are included. A key bound to one project sees the calls of this project only.
    """
    dimensions = list(dict.fromkeys(group_by))
    start = since or default_start(until or datetime.now(UTC))
    filter = UsageFilter(start, until, project_filter(caller, project_id))
    if LESSON not in dimensions:
        rows = await sum_usage(session, dimensions, filter)
    elif len(dimensions) == 1:
        rows = await list_lesson_costs(session, filter)
    else:
        raise InvalidRequest("`lesson_id` cannot be combined with others.", field="group_by")
    return UsagePage(items=[Usage.model_validate(row) for row in rows])


async def _load_budgets(session: AsyncSession, project_id: str | None) -> BudgetPage:
    now = datetime.now(UTC)
    rows = await queries.list_budgets(session, project_id=project_id)
    totals = await queries.load_totals(session, [budget_key(row, now) for row in rows])
    month = period_start("month", now).date()
    alerts = await queries.list_alerts(session, month, project_id=project_id) if rows else ()
    budgets: list[Budget] = []
    for row in rows:
        key = budget_key(row, now)
        own_alerts = [
            BudgetAlert.model_validate(alert, from_attributes=True)
            for alert in alerts
            if TotalKey(alert.period, alert.starts_on, alert.project_id, alert.purpose) == key
        ]
        status = budget_status(row, totals.get(key, Spending()), now)
        fields = {
            "allow_unknown_price": row.allow_unknown_price,
            "when_spent": row.when_spent,
            "alerts": own_alerts,
        }
        budgets.append(Budget.model_validate(status | fields))
    return BudgetPage(items=budgets)
