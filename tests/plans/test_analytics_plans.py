"""A question about a month reads the rows of a month, whatever the tables contain."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from bench.analytics_rows import History, fill
from memory_api.analytics.questions import Question, QuestionFilter, has_period
from memory_api.core.migrations import function_statements
from tests.plans.conftest import nodes
from tests.support.postgres import Server

YEAR = History(500, 25_000, 25_000, 6_000, 365, datetime(2025, 1, 1, tzinfo=UTC))
MAY = QuestionFilter(
    "default", datetime(2025, 5, 1, tzinfo=UTC), datetime(2025, 6, 1, tzinfo=UTC), "support"
)
TENANTS = [UUID(int=n) for n in (1, 2)]
LARGE = ("memory_revisions", "bullet_verdicts", "traces", "retrievals", "llm_calls")
"""The tables that grow with time."""
MAX_SHARE = 0.5
"""The share of a table that a question about a month may read. A month is 0.085 of the year.
`verdict_drift` reads two months.
"""
READS_ONCE = {Question.EFFECTS: 0.2}
"""`effects` reads the retrievals of the month once, and its traces twice."""
WHOLE_LIFE = {
    Question.BULLETS: {"memory_revisions"},
    Question.SURVIVAL: {"memory_revisions", "bullet_verdicts"},
    Question.UNIT_COSTS: {"traces", "llm_calls"},
}
"""Questions about more than the period, and the tables that they may read."""


@pytest.fixture(scope="module")
async def year(server: Server, worker_id: str) -> AsyncIterator[Any]:
    """A connection as the service to a database with two tenants, each with a year of history."""
    name = f"analytics_plans_{worker_id}"
    await server.clone(name)
    for tenant in TENANTS:
        await fill(server.url("postgres", name), tenant, YEAR)
    await server.run("vacuum analyze", name)
    connection = await asyncpg.connect(server.url("hansei_app", name))
    await connection.execute(f"set hansei.tenant_id = '{TENANTS[0]}'")
    await connection.execute("set plan_cache_mode = force_custom_plan")
    yield connection
    await connection.close()


def statement_of(question: Question, filter: QuestionFilter) -> str:
    """The statement of the function that answers the question, with the values of its variables."""
    function = function_statements()[f"questions.{question}"]
    statement = function.partition("return query\n")[2].partition(";\nend $$")[0]
    since, until = (
        (filter.since, filter.until) if has_period(question) else ("-infinity", "infinity")
    )
    values = {
        "p_tenant_id": f"'{TENANTS[0]}'::uuid",
        **dict.fromkeys(("p_since", "v_first"), f"'{since}'::timestamptz"),
        **dict.fromkeys(("p_until", "v_end"), f"'{until}'::timestamptz"),
        "p_project_id": f"'{filter.project}'",
        "p_playbook": f"'{filter.playbook}'" if filter.playbook else "null",
    }
    return re.sub(rf"\b({'|'.join(values)})\b", lambda name: values[name[0]], statement)


def rows_read(plan: dict[str, Any]) -> dict[str, float]:
    """Table → rows that the plan fetched, also those that a filter removed."""
    found: dict[str, float] = defaultdict(float)
    for node in nodes(plan):
        if "Relation Name" in node:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            found[node["Relation Name"]] += rows * node["Actual Loops"]
    return found


@pytest.mark.parametrize("question", Question)
async def test_question_reads_its_month(year: Any, question: Question) -> None:
    await year.execute("set max_parallel_workers_per_gather = 0")
    statement = statement_of(question, MAY)
    explained = await year.fetchval(f"explain (analyze, format json) {statement}")
    read = rows_read(json.loads(explained)[0]["Plan"])
    for table in LARGE:
        if table not in WHOLE_LIFE.get(question, ()):
            size = await year.fetchval(f"select count(*) from {table}")
            share = READS_ONCE.get(question, MAX_SHARE)
            assert read[table] <= size * share, (table, read[table], size)


async def test_near_duplicates_of_all_playbooks_read_each_bullet_once(year: Any) -> None:
    """Not once for each vector, which takes a minute with 10,000 bullets."""
    statement = statement_of(Question.NEAR_DUPLICATES, replace(MAY, playbook=None))
    explained = await year.fetchval(f"explain (analyze, format json) {statement}")
    bullets = await year.fetchval("select count(*) from memories where key is not null")
    pairs = len(await year.fetch(statement))
    assert 0 < rows_read(json.loads(explained)[0]["Plan"])["memories"] <= bullets + 2 * pairs
