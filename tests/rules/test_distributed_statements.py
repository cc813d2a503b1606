"""What a statement must not contain, so that Citus accepts it for a table that is distributed by
tenant (docs/decisions/distribution.md). Wrong statements fail only there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from memory_api.analytics.questions import Question
from memory_api.core.migrations import function_statements
from tests.rules.isolation import NOT_OF_A_TENANT
from tests.rules.sources import files, name_of
from tests.rules.test_distribution import STATEMENTS, TENANT_TABLES
from tests.support.cases import each_case

PLAYBOOK_AT = "analytics.playbook_at"
COORDINATOR_TABLES = "|".join(NOT_OF_A_TENANT - {"tenants"})
TIME = r"\b(now|clock_timestamp|statement_timestamp|random|gen_random_uuid)\s*\("
VOLATILE = r"\b(clock_timestamp|random|gen_random_uuid)\s*\("
PARTS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign)
DISTRIBUTED = {
    name: text for name, text in STATEMENTS.items() if re.search(rf"\b({TENANT_TABLES})\b", text)
}


CHANGED_TIME = r"\bcoalesce\s*\([^()]*\bnow\s*\("


def upserts(text: str) -> list[str]:
    return re.findall(r"\bon conflict\b.*", text, re.IGNORECASE | re.DOTALL)


def conditions(text: str) -> list[str]:
    return re.findall(r"\bwhere\b.*", text, re.IGNORECASE | re.DOTALL)


def without_materialized(text: str) -> str:
    """The statement without its materialized CTEs, which Citus computes first."""
    start = re.search(r"\bas materialized \(", text)
    if start is None:
        return text
    depth, end = 1, start.end()
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return without_materialized(text[: start.start()] + text[end:])


def joins_both(text: str) -> bool:
    """Whether one part of the statement reads tables of both kinds."""
    rest = without_materialized(text)
    kinds = (COORDINATOR_TABLES, TENANT_TABLES)
    return all(re.search(rf"\b(from|join)\s+({kind})\b", rest) for kind in kinds)


@each_case("name", DISTRIBUTED)
def test_upsert_takes_times_from_the_inserted_row(name: str) -> None:
    assert [text for text in upserts(DISTRIBUTED[name]) if re.search(TIME, text)] == []


@each_case("name", DISTRIBUTED)
def test_condition_has_no_volatile_function(name: str) -> None:
    assert [text for text in conditions(DISTRIBUTED[name]) if re.search(VOLATILE, text)] == []


@each_case("name", DISTRIBUTED)
def test_first_time_is_set_with_least(name: str) -> None:
    """`least(a, now())` instead of `coalesce(a, now())` in an UPDATE."""
    assert not re.search(CHANGED_TIME, DISTRIBUTED[name])


@each_case("name", DISTRIBUTED)
def test_tables_of_the_coordinator_are_not_joined_with_distributed_ones(name: str) -> None:
    assert not joins_both(DISTRIBUTED[name])


def columns_in_stable_functions(text: str) -> list[str]:
    """Calls of a stable function with a column in an UPDATE: no node could evaluate them."""
    called = r"\b(?:jsonb?_build_\w+|to_jsonb?|concat(?:_ws)?|format|to_char|date_trunc)\s*\("
    updates = re.findall(rf"\bupdate (?:{TENANT_TABLES})\b.*", text, re.DOTALL)
    return [call for update in updates for call in re.findall(rf"{called}[^)]*\b\w\.\w+", update)]


@each_case("name", DISTRIBUTED)
def test_update_calls_no_stable_function_with_a_column(name: str) -> None:
    assert columns_in_stable_functions(DISTRIBUTED[name]) == []


FUNCTIONS = function_statements()
COUNTED = {"survival", "verdicts", "movers", "verdict_drift", "funnel"}
"""Questions that read the view `counted_verdicts`, whose subqueries compare the tenants of two
tables: Citus sends them to all shards. It plans no table that compares beside one that does not.
"""


@each_case("name", FUNCTIONS)
def test_function_with_tables_is_planned_with_its_arguments(name: str) -> None:
    """Citus plans a statement before PostgreSQL inlines the SQL functions in it."""
    if re.search(rf"\b(from|join)\s+({TENANT_TABLES})\b", FUNCTIONS[name]):
        assert "language plpgsql" in FUNCTIONS[name]


@each_case("name", [name for name in FUNCTIONS if "pg_stat_activity" in FUNCTIONS[name]])
def test_sessions_are_read_without_a_table(name: str) -> None:
    """Citus would run the statement without the rights of the view."""
    for statement in FUNCTIONS[name].split(";"):
        if "pg_stat_activity" in statement:
            assert not re.search(r"\b(from|join)\s+(public|analytics)\.", statement)


@each_case("name", [name for name in FUNCTIONS if name.startswith(("questions.", "analytics."))])
def test_function_of_a_question_returns_a_table(name: str) -> None:
    """Citus finds a circle between a function of the row type of a view, and a view on it."""
    assert "returns setof" not in FUNCTIONS[name]


@each_case("name", [f"questions.{q}" for q in Question if q not in COUNTED] + [PLAYBOOK_AT])
def test_question_names_tenant_of_every_table(name: str) -> None:
    """A condition on two tables does not reach a lateral subquery, so Citus finds no node."""
    text = re.sub(r"--.*", "", FUNCTIONS[name])
    views = "llm_call_details|playbook_costs"
    read = re.findall(rf"\b(?:from|join)\s+({TENANT_TABLES}|{views})\s+(\w+)", text)
    assert read
    assert "counted_verdicts" not in text
    for table, alias in read:
        assert re.search(rf"\b{alias}\.tenant_id = (p_tenant_id|tenant)\b", text), table


def calls(method: str) -> Iterator[tuple[Path, ast.Call]]:
    for path in files("apps", suffix=".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == method:
                yield path, node


def functions_of(node: ast.AST) -> set[str]:
    """Names of the SQL functions that an expression calls: `func.now()`, or a constant NOW."""
    called = {
        child.attr
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute) and getattr(child.value, "id", "") == "func"
    }
    return called | {"NOW" for c in ast.walk(node) if isinstance(c, ast.Name) and c.id == "NOW"}


def test_upserts_of_models_take_times_from_the_inserted_row() -> None:
    """Also where a dictionary above the call has the values."""
    found = 0
    for path in files("apps", suffix=".py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, PARTS) and "on_conflict_do_update" in ast.unparse(node):
                found += 1
                assert not functions_of(node) & {"now", "clock_timestamp", "NOW"}, name_of(path)
    assert found >= 3


def test_conditions_of_models_have_no_volatile_function() -> None:
    found = list(calls("where"))
    assert len(found) > 100
    for path, call in found:
        assert not functions_of(call) & {"clock_timestamp", "random"}, name_of(path)


def test_updates_of_models_set_the_first_time_with_least() -> None:
    for path, call in calls("coalesce"):
        assert not functions_of(call) & {"now", "NOW"}, name_of(path)


def test_the_patterns_find_what_they_are_for() -> None:
    upsert = "insert into t (a) values (1) on conflict (a) do update set b = now()"
    assert re.search(TIME, upserts(upsert)[0])
    assert re.search(VOLATILE, conditions("select 1 where a < clock_timestamp()")[0])
    assert re.search(CHANGED_TIME, "update t set a = coalesce(a, now())")
    joined = "select from runs r where not exists (select from tickets t where t.run_id = r.id)"
    assert joins_both(joined)
    materialized = "with r as materialized (select (1) from runs) select from r join tickets t"
    assert not joins_both(materialized)
    assert columns_in_stable_functions("update runs r set a = to_jsonb(r.b)")
    assert functions_of(ast.parse("x.where(a < func.random())")) == {"random"}
