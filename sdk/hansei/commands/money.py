"""`hansei budget` and `hansei usage`: what models may cost, and what they did."""

from __future__ import annotations

from typing import Annotated

import typer

from hansei.client import Hansei
from hansei.money import Budget, BudgetLimit, Period, Usage
from hansei.terminal import connect, say, show, show_json

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document.")]


def budget(
    day: Annotated[float | None, typer.Option(min=0, help="US dollars a day.")] = None,
    month: Annotated[float | None, typer.Option(min=0, help="US dollars a month.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all limits away.")] = False,
    allow_unknown_price: Annotated[
        bool, typer.Option(help="Also models that nobody knows the price of, when a limit is set.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what your tenant may spend on models, or set it (needs an admin key)."""
    with connect() as client:
        given: dict[Period, float | None] = {"day": day, "month": month}
        if none or day is not None or month is not None:
            found = _set(client, {} if none else given, allow_unknown_price)
        else:
            found = list(client.budgets())
    if as_json:
        show_json({"items": found})
        return
    if not found:
        say("No limit is set.")
    for one in found:
        _show_budget(one)


def _set(client: Hansei, given: dict[Period, float | None], allow: bool) -> list[Budget]:
    """A period that is not named keeps its limit."""
    limits: dict[Period, BudgetLimit] = {
        one["period"]: {
            "period": one["period"],
            "usd": one["usd"],
            "allow_unknown_price": one["allow_unknown_price"],
        }
        for one in (client.budgets() if given else ())
    }
    for period, usd in given.items():
        if usd is not None:
            limits[period] = {"period": period, "usd": usd, "allow_unknown_price": allow}
    return client.set_budgets(list(limits.values()))["items"]


def usage(
    by: Annotated[
        list[str] | None, typer.Option(help="day, model, provider or purpose; may be repeated.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="A time; 30 days ago by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was asked of models, and what it cost."""
    with connect() as client:
        found = list(client.usage(by or ("day",), since=since))
    if as_json:
        show_json({"items": found})
        return
    if not found:
        say("No model was asked.")
    for row in found:
        _show_usage(row)


def _show_budget(one: Budget) -> None:
    spent = f"${one['spent_usd']:.4f} spent, ${one['reserved_usd']:.4f} set aside"
    left = f"${one['left_usd']:.4f} of ${one['usd']:.2f} left until {one['resets_at']}"
    show(f"{one['period']} · {left} · {spent}", style="" if one["left_usd"] else "red")


def _show_usage(row: Usage) -> None:
    keys = [row[name] for name in ("day", "provider", "model", "purpose") if row[name]]
    calls = f"{row['calls']} calls" + (f" ({row['failed']} failed)" if row["failed"] else "")
    tokens = f"{row['input_tokens']} tokens in ({row['cached_tokens']} cached)"
    facts = [*keys, calls, tokens, f"{row['output_tokens']} out", _cost(row)]
    show(" · ".join(str(fact) for fact in facts))


def _cost(row: Usage) -> str:
    """No price is not a price of nothing."""
    known, unknown = row["calls"] - row["failed"] - row["unpriced"], row["unpriced"]
    if not unknown:
        return f"${row['usd']:.4f}"
    if known <= 0:
        return "price unknown"
    return f"${row['usd']:.4f} and {unknown} calls of unknown price"
