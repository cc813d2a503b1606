"""What a login for SQL reads: for each function of the schema `questions`, a function of a period
and of a playbook, and a view of the same name without them, both in the schema `analytics`.

Nothing of a statement of a login is evaluated over tables: the function binds the tenant of the
login and returns its rows (docs/decisions/row-level-security.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from migrations.statements import read_statements

_ALWAYS = ("'-infinity'", "'infinity'")
_MONTH = ("now() - interval '30 days'", "now()")
_WEEKS = ("date_trunc('week', now(), 'UTC') - interval '77 days'", "now()")
_PERIODS = {"movers": _MONTH, "verdict_drift": _MONTH, "effects": _MONTH, "improvement": _WEEKS}
"""Function → the period of its view. The others have all rows."""
_SETTINGS = {"effects": " set enable_nestloop = off"}
"""A generic plan expects few rows in the period, and would compare each row with each other."""
_FILES = ("analytics", "near_duplicates", "analytics_flow", "effects")
_QUESTION = re.compile(
    r"^create function questions\.(\w+)\(p_tenant_id .*\nreturns table \(([^)]*)\)", re.MULTILINE
)


def login_views() -> Iterator[str]:
    """The statements that create the functions and views."""
    for file in _FILES:
        for statement in read_statements(file):
            if question := _QUESTION.search(statement):
                yield from _create(*question.groups())
    yield "revoke execute on all functions in schema analytics from public"


def _create(name: str, columns: str) -> Iterator[str]:
    """The plan is a generic one: it must not depend on values that a login chooses, because it is
    made from statistics of all tenants. A login that sets `debug_print_plan` does not get it.
    """
    since, until = _PERIODS.get(name, _ALWAYS)
    settings = " set plan_cache_mode = force_generic_plan set client_min_messages = warning"
    settings += _SETTINGS.get(name, "")
    yield f"""create function analytics.{name}(p_since timestamptz default {since},
    p_until timestamptz default {until}, p_playbook text default null)
returns table ({columns}) language plpgsql stable security definer
set search_path = pg_catalog, pg_temp{settings} as $$
begin
    return query
    select * from questions.{name}(analytics.bind_login(), p_since, p_until, null, p_playbook);
end $$"""
    yield (
        f"create view analytics.{name} with (security_invoker = true) as"
        f" select * from analytics.{name}()"
    )
    yield f"grant execute on function analytics.{name} to hansei_analyst"
    yield f"grant select on analytics.{name} to hansei_analyst"
