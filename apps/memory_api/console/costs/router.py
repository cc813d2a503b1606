"""What model calls cost, and the budgets that limit them."""

from __future__ import annotations

from typing import Any, get_args

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from memory_api.api.deps import Admin, Reader, Session
from memory_api.budgets.queries import lock_budgets
from memory_api.budgets.router import list_budgets, list_usage, replace_budgets
from memory_api.budgets.schemas import BudgetLimit, Purpose, ReplaceBudgetsRequest, Usage
from memory_api.console.charts import Chart, Series, draw_chart
from memory_api.console.days import MONTH_DAYS, last_days, midnight, today
from memory_api.console.forms import validate_body
from memory_api.console.pages import ConsoleRoute, CurrentVisit, Form
from memory_api.console.rendering import format_short_day, format_usd, render_page
from memory_api.console.visit import Visit
from memory_api.core.errors import InvalidRequest

router = APIRouter(prefix="/console/costs", route_class=ConsoleRoute, include_in_schema=False)

_SUMMED = ("call_count", "failed_count", "input_tokens", "output_tokens", "cost_usd")


@router.get("")
async def show_costs(
    visit: CurrentVisit, session: Session, caller: Reader, done: str = ""
) -> Response:
    groups = ("day", "purpose", "model", "playbook")
    since = midnight(last_days(MONTH_DAYS)[0])
    usage = (await list_usage(session, caller, visit.project, groups, since)).items
    month = midnight(today().replace(day=1))
    this_month = (await list_usage(session, caller, visit.project, ("purpose",), month)).items
    budgets = await list_budgets(session, caller)
    return render_page(
        visit,
        "costs/costs.html",
        chart=_draw_costs(visit, usage),
        month_start=month,
        month_cost=sum(item.cost_usd for item in this_month),
        total=sum(item.cost_usd for item in usage),
        calls=sum(item.call_count for item in usage),
        unpriced=sum(item.unpriced_count for item in usage),
        by_purpose=_sum_by(usage, "purpose", "model"),
        by_playbook=_sum_by(usage, "playbook"),
        budgets=budgets.items,
        purposes=list(get_args(Purpose)),
        done=done,
    )


def _sum_by(usage: list[Usage], *names: str) -> list[dict[str, Any]]:
    """Sums by these columns, the most expensive first."""
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for item in usage:
        group = {name: getattr(item, name) for name in names}
        entry = sums.setdefault(tuple(group.values()), dict.fromkeys(_SUMMED, 0) | group)
        for column in _SUMMED:
            entry[column] += getattr(item, column)
    return sorted(sums.values(), key=lambda entry: -entry["cost_usd"])


def _draw_costs(visit: Visit, usage: list[Usage]) -> Chart:
    _ = visit.translation.gettext
    costs = dict.fromkeys(last_days(MONTH_DAYS), 0.0)
    for item in usage:
        if item.day is not None and item.day in costs:
            costs[item.day] += item.cost_usd
    return draw_chart(
        "bar",
        _("Cost of model calls by day"),
        [format_short_day(day, visit.translation) for day in costs],
        [Series(_("Cost"), list(costs.values()))],
        format=format_usd,
        summary=_("Last 30 days, US dollars"),
    )


@router.post("/budgets")
async def add_budget(visit: CurrentVisit, session: Session, caller: Admin, form: Form) -> Response:
    values = {
        "period": form.text("period"),
        "project_id": form.text("project") or None,
        "purpose": form.text("purpose") or None,
        "limit_usd": form.text("limit_usd") or None,
        "limit_tokens": form.text("limit_tokens") or None,
        "when_spent": form.text("when_spent") or "refuse",
    }
    budget = validate_body(BudgetLimit, values)
    kept = [item for item in await _load_limits(session, caller) if _name(item) != _name(budget)]
    body = validate_body(ReplaceBudgetsRequest, {"items": [*_dump(kept), *_dump([budget])]})
    await replace_budgets(body, session, caller)
    return RedirectResponse(visit.link("costs", done="saved"), 303)


@router.post("/budgets/delete")
async def delete_budget(
    visit: CurrentVisit, session: Session, caller: Admin, form: Form
) -> Response:
    limits = await _load_limits(session, caller)
    kept = [item for item in limits if "/".join(_name(item)) != form.text("budget")]
    if len(kept) == len(limits):
        raise InvalidRequest("There is no such budget.", field="budget")
    body = validate_body(ReplaceBudgetsRequest, {"items": _dump(kept)})
    await replace_budgets(body, session, caller)
    return RedirectResponse(visit.link("costs", done="deleted"), 303)


async def _load_limits(session: Session, caller: Admin) -> list[BudgetLimit]:
    await lock_budgets(session)
    found = await list_budgets(session, caller)
    fields = set(BudgetLimit.model_fields)
    return [BudgetLimit.model_validate(item.model_dump(include=fields)) for item in found.items]


def _name(budget: BudgetLimit) -> tuple[str, str, str]:
    """What identifies a budget."""
    return str(budget.period), budget.project_id or "", budget.purpose or ""


def _dump(limits: list[BudgetLimit]) -> list[dict[str, object]]:
    return [item.model_dump() for item in limits]
