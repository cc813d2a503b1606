"""`hansei budget` and `hansei usage`: limits and cost of model calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, cast

import typer

from hansei.cli.commands import Client, Output, command, listing
from hansei.cli.options import Project
from hansei.cli.terminal import format_count, format_usd, print_text
from hansei.models import Budget, Period, Usage
from hansei.params import BudgetLimit

budget_commands = typer.Typer(
    name="budget", help="Show and set the budgets for model calls.", no_args_is_help=True
)

DIMENSIONS = ("day", "provider", "model", "purpose", "project_id", "playbook", "lesson_id")
COUNTS = (
    *("call_count", "failed_count", "unpriced_count", "input_tokens", "cached_tokens"),
    *("output_tokens", "cost_usd"),
)


@command(budget_commands, "show")
def show_budgets(client: Client) -> Output:
    """Show the budgets of your tenant and what is left of them."""
    return _list(client.budgets.list())


@command(budget_commands, "set")
def set_budgets(
    client: Client,
    day: Annotated[float | None, typer.Option(min=0, help="US dollars per day.")] = None,
    month: Annotated[float | None, typer.Option(min=0, help="US dollars per month.")] = None,
    day_tokens: Annotated[int | None, typer.Option(min=0, help="Tokens per day.")] = None,
    month_tokens: Annotated[int | None, typer.Option(min=0, help="Tokens per month.")] = None,
    project: Annotated[str | None, typer.Option(help="Limit this project only.")] = None,
    purpose: Annotated[
        str | None, typer.Option(help="Limit these calls only: reflect, curate, evaluate, …")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Remove all budgets.")] = False,
    allow_unknown_price: Annotated[
        bool, typer.Option(help="Allow models without a known price.")
    ] = False,
    when_spent: Annotated[
        Literal["refuse", "rules"], typer.Option(help="rules: use the rules engine.")
    ] = "refuse",
) -> Output:
    """Set the budgets of your tenant, a project or a purpose. Requires an admin key.

    The budget of a period, project or purpose that you do not name is unchanged.
    """
    amounts: dict[Period, tuple[float | None, int | None]] = {
        "day": (day, day_tokens),
        "month": (month, month_tokens),
    }
    new_limits: list[BudgetLimit] = [
        {
            "period": period,
            "project_id": project,
            "purpose": cast("Any", purpose),  # the service knows the purposes
            "limit_usd": usd,
            "limit_tokens": tokens,
            "allow_unknown_price": allow_unknown_price,
            "when_spent": when_spent,
        }
        for period, (usd, tokens) in amounts.items()
        if usd is not None or tokens is not None
    ]
    if not none and not new_limits:
        raise typer.BadParameter("Set --day, --month, --day-tokens, --month-tokens or --none.")
    # Replaces the budgets of the same period, project and purpose.
    limits = {_key(limit): limit for limit in map(_to_limit, client.budgets.list())}
    limits |= {_key(limit): limit for limit in new_limits}
    return _list(client.budgets.replace([] if none else list(limits.values())))


def _list(budgets: Iterable[Budget]) -> Output:
    return listing(budgets, "No budget is set.", each=_print_budget)


def _key(limit: BudgetLimit) -> tuple[str, str | None, str | None]:
    return limit["period"], limit.get("project_id"), limit.get("purpose")


def _to_limit(budget: Budget) -> BudgetLimit:
    return {
        "period": budget.period,
        "project_id": budget.project_id,
        "purpose": budget.purpose,
        "limit_usd": budget.limit_usd,
        "limit_tokens": budget.limit_tokens,
        "allow_unknown_price": budget.allow_unknown_price,
        "when_spent": budget.when_spent,
    }


def show_usage(
    client: Client,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="day, model, provider, purpose, project_id or playbook. Repeatable. Or"
            " lesson_id alone."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="ISO 8601 time. Default: midnight (UTC) 30 days ago.")
    ] = None,
    project: Project = None,
) -> Output:
    """Show model calls, tokens and cost."""
    today = datetime.now(UTC).date()
    # The default of the service, sent so that the printed period is the one of the rows.
    first = since or str(today - timedelta(days=30))
    rows = client.usage.list(cast(Any, by), since=first, project_id=project)
    period = f"{first} to {today}"
    return listing(
        rows,
        f"No model calls found ({period}).",
        table=lambda found: _print_usage_of_period(found, period),
    )


def _print_budget(budget: Budget) -> None:
    scope = [f"{budget.period}", *(s for s in (budget.project_id, budget.purpose) if s)]
    left: list[str] = []
    is_spent = False
    if budget.limit_usd is not None and budget.left_usd is not None:
        left.append(f"{format_usd(budget.left_usd)} of {format_usd(budget.limit_usd)} left")
        is_spent = not budget.left_usd
    if budget.limit_tokens is not None:
        left.append(f"{budget.left_tokens} of {budget.limit_tokens} tokens left")
        is_spent = is_spent or not budget.left_tokens
    spent = f"{format_usd(budget.spent_usd)} spent, {format_usd(budget.reserved_usd)} reserved"
    if budget.limit_tokens is not None:
        spent += f", {budget.spent_tokens} tokens spent"
    facts = [*scope, f"{', '.join(left)} until {budget.resets_at}", spent]
    print_text(" · ".join(facts), style="red" if is_spent else "")


def _print_usage_of_period(rows: Sequence[Usage], period: str) -> None:
    print_text(period, style="bold")
    for row in rows:
        _print_usage([value for name in DIMENSIONS if (value := getattr(row, name))], row)
    sums = {name: sum(getattr(row, name) for row in rows) for name in COUNTS}
    _print_usage(["total"], Usage.from_json(sums))


def _print_usage(keys: list[str], row: Usage) -> None:
    calls = format_count(row.call_count, "call")
    calls += f" ({row.failed_count} failed)" if row.failed_count else ""
    tokens = f"{row.input_tokens} tokens in ({row.cached_tokens} cached)"
    facts = [*keys, calls, tokens, f"{row.output_tokens} out", _format_cost(row)]
    print_text(" · ".join(str(fact) for fact in facts))


def _format_cost(row: Usage) -> str:
    """An unknown price is not a price of 0."""
    unpriced = row.unpriced_count
    priced = row.call_count - row.failed_count - unpriced
    if not unpriced:
        return format_usd(row.cost_usd)
    if priced <= 0:
        return "price unknown"
    return f"{format_usd(row.cost_usd)} and {format_count(unpriced, 'call')} with unknown price"
