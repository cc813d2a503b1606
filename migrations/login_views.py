"""What a login for SQL reads: for each view of the schema `questions`, a function of a period and
of a playbook, and a view of the same name without them, both in the schema `analytics`.

Nothing of a statement of a login is evaluated over tables: the function binds the tenant of the
login and returns its rows (docs/decisions/row-level-security.md).
"""

from __future__ import annotations

from collections.abc import Iterator

_ALWAYS = ("'-infinity'", "'infinity'")
_MONTH = ("now() - interval '30 days'", "now()")
_WEEKS = ("date_trunc('week', now(), 'UTC') - interval '77 days'", "now()")
_FIRST_DAY = "(p_since at time zone 'UTC')::date"
_LAST_DAY = "((p_until - interval '1 microsecond') at time zone 'UTC')::date"
_DAY = f"day between {_FIRST_DAY} and {_LAST_DAY}"


def _within(column: str) -> str:
    return f"{column} >= p_since and {column} < p_until"


_PERIODS = {
    **dict.fromkeys(("playbook_sizes", "churn", "verdicts", "funnel", "coverage", "costs"), _DAY),
    **dict.fromkeys(("agent_runs", "error_categories", "days"), _DAY),
    **dict.fromkeys(("uncovered_queries", "conflicts", "bullets"), _within("created_at")),
    "bullet_versions": _within("changed_at"),
    "near_duplicates": _within("changed_at"),
    "contradictions": _within("found_at"),
    **dict.fromkeys(("unit_costs", "survival"), "true"),
}
"""View → the condition of the period; `true` without one."""
_FUNCTIONS = {"movers": _MONTH, "verdict_drift": _MONTH, "effects": _MONTH, "improvement": _WEEKS}
"""Functions of a period → the period of their view."""
_SETTINGS = {"effects": " set enable_nestloop = off"}
"""A generic plan expects few rows in the period, and would compare each row with each other."""


def login_views() -> Iterator[str]:
    """The statements that create the functions and views."""
    for name, condition in _PERIODS.items():
        yield from _create(name, f"questions.{name}", condition, _ALWAYS)
    for name, period in _FUNCTIONS.items():
        yield from _create(name, f"questions.{name}(p_since, p_until)", "true", period)
    yield "revoke execute on all functions in schema analytics from public"


def _create(name: str, source: str, condition: str, period: tuple[str, str]) -> Iterator[str]:
    """The plan is a generic one: it must not depend on values that a login chooses, because it is
    made from statistics of all tenants. A login that sets `debug_print_plan` does not get it.
    """
    if name != "days":
        condition += " and (p_playbook is null or playbook = p_playbook)"
    settings = " set plan_cache_mode = force_generic_plan set client_min_messages = warning"
    settings += _SETTINGS.get(name, "")
    since, until = period
    yield f"""create function analytics.{name}(p_since timestamptz default {since},
    p_until timestamptz default {until}, p_playbook text default null)
returns setof questions.{name} language plpgsql stable security definer
set search_path = pg_catalog, pg_temp{settings} as $$
declare
    tenant uuid := analytics.bind_login();
begin
    return query select * from {source} where tenant_id = tenant and {condition};
end $$"""
    yield (
        f"create view analytics.{name} with (security_invoker = true) as"
        f" select * from analytics.{name}()"
    )
    yield f"grant execute on function analytics.{name} to hansei_analyst"
    yield f"grant select on analytics.{name} to hansei_analyst"
