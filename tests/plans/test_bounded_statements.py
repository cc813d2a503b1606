"""With 100,000 rows, statements of retention and learning read no more than they need: neither all
stored responses of a tenant, nor all attempts at a task, nor all runs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from memory_api.core.resources import read_sql
from memory_api.core.statements import Statement, parse_statement
from memory_api.reflection.context import MAX_TASK_ATTEMPTS, TASK_KNOWLEDGE
from memory_api.traces import queries
from memory_api.traces.queries import MAX_EARLIER_ATTEMPTS
from tests.support.postgres import Server

TENANT = UUID(int=77)
ROWS, FEW = 100_000, 10
FILL = f"""
insert into tenants (id, slug) values ('{TENANT}', 'bounded');
insert into idempotency_keys
    (tenant_id, route, key, body_hash, response_status, response_body)
select '{TENANT}', 'POST /api/v1/traces', n::text, '', 201,
       jsonb_build_object('trace_id', md5(n::text)::uuid)
from generate_series(1, {ROWS}) n;
insert into response_mentions (tenant_id, route, key, mentioned_id)
select '{TENANT}', 'POST /api/v1/traces', n::text, md5(n::text)::uuid
from generate_series(1, {ROWS}) n;
insert into traces (tenant_id, id, project_id, task_key, outcome, content_hash, event_count,
                    retrieval_id, created_at)
select '{TENANT}', md5(n::text)::uuid, 'p', case when n <= {FEW} then 'few' else 'many' end,
       'success', '', 3, md5('r' || n)::uuid, now() - n * interval '1 second'
from generate_series(1, {ROWS}) n;
insert into runs (tenant_id, id, kind, state, finished_at)
select '{TENANT}', md5('run' || n)::uuid,
       case when n % 100 = 0 then 'webhook' else 'evaluate' end, 'done',
       now() - n * interval '1 second'
from generate_series(1, {ROWS}) n;
insert into scopes (tenant_id, id, project_id, type, name)
values ('{TENANT}', 1, 'p', 'kind', 'episode');
insert into memories (tenant_id, id, project_id, layer, kind, scope_id, content, searchable_text,
                      source, session_id, tokenizer, fingerprint, created_at, updated_at)
select '{TENANT}', md5('episode' || n)::uuid, 'p', 'em', 'episode', 1, 'x', 'x', 'trace',
       case when n % 2 = 0 then 'small' || n / 20 else 'large' end, '', '',
       now() - n * interval '1 second', now() - n * interval '1 second'
from generate_series(1, {ROWS}) n;
insert into tickets (lane, run_id, due_at, queued_at)
select md5('lane' || n % 100)::uuid, md5('run' || n)::uuid,
       now() + case when n % 10 = 0 then 1 else -1 end * n * interval '1 second', now()
from generate_series(1, {ROWS} - 1) n;
insert into tickets (lane, run_id, taken_by, taken_at)
values (md5('lane1')::uuid, md5('run')::uuid, md5('worker')::uuid, now());
"""


@pytest.fixture(scope="module")
async def filled(server: Server, worker_id: str) -> AsyncIterator[str]:
    """The URL of the service's role in a database with 100,000 rows per table."""
    name = f"bounded_{worker_id}"
    await server.clone(name)
    connection = await asyncpg.connect(server.url("postgres", name))
    try:
        await connection.execute("set session_replication_role = replica")
        await connection.execute(FILL)
        for table in (
            "idempotency_keys",
            "response_mentions",
            "traces",
            "runs",
            "memories",
            "tickets",
        ):
            await connection.execute(f"vacuum (analyze) {table}")
    finally:
        await connection.close()
    yield server.url("hansei_app", name)
    await server.drop_database(name)


@pytest.fixture
async def connection(filled: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """In a transaction of the tenant, which is rolled back."""
    opened = await asyncpg.connect(filled)
    await opened.execute(f"begin; set local hansei.tenant_id = '{TENANT}'")
    yield opened
    await opened.execute("rollback")
    await opened.close()


async def rows_read(
    connection: asyncpg.Connection[Any], statement: Statement, parameters: dict[str, Any]
) -> int:
    """The rows that the scans of a plan returned or discarded."""
    arguments = [parameters[name] for name in statement.parameters]
    text = f"explain (analyze, format json) {statement.text}"
    plan = json.loads(await connection.fetchval(text, *arguments))

    def count(node: dict[str, Any]) -> int:
        own = 0
        if "Scan" in node["Node Type"] and "Relation Name" in node:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            own = round(rows * node["Actual Loops"])
        return own + sum(count(child) for child in node.get("Plans", ()))

    return count(plan[0]["Plan"])


def attempt(task: str) -> dict[str, Any]:
    return {
        "tenant": TENANT,
        "project": "p",
        "task": task,
        "before": datetime.now(UTC),
    }


async def test_erasing_traces_reads_only_the_responses_that_name_them(connection: Any) -> None:
    statement = parse_statement(read_sql("traces/storage.sql", "erase_responses"))
    ids = await connection.fetch("select md5(n::text)::uuid from generate_series(1, 100) n")
    parameters = {"tenant": TENANT, "ids": [row[0] for row in ids]}
    assert await rows_read(connection, statement, parameters) <= 500
    left = await connection.fetchval("select count(*) from idempotency_keys")
    assert left == ROWS - 100


@pytest.mark.parametrize("task", ["few", "many"])
async def test_search_for_duplicates_reads_the_newest_attempts(connection: Any, task: str) -> None:
    parameters = attempt(task) | {
        "limit": 8,
        "outcome": "success",
        "event_count": 3,
        "playbook": None,
        "retrieval_id": uuid4(),
        "test_report": None,
        "is_unnamed": True,
    }
    statement = queries._DUPLICATE_CANDIDATES
    read = await rows_read(connection, statement, parameters)
    assert FEW <= read <= MAX_EARLIER_ATTEMPTS + FEW


async def test_search_for_failures_reads_the_newest_attempts(connection: Any) -> None:
    parameters = attempt("many") | {"success": "success"}
    read = await rows_read(connection, queries._HAS_FAILED_ATTEMPT, parameters)
    assert MAX_EARLIER_ATTEMPTS <= read <= MAX_EARLIER_ATTEMPTS + FEW


async def test_knowledge_of_a_task_reads_the_newest_attempts(connection: Any) -> None:
    parameters = attempt("many") | {
        "max_attempts": MAX_TASK_ATTEMPTS,
        "max_lessons": 20,
        "max_hints": 1,
    }
    assert await rows_read(connection, TASK_KNOWLEDGE, parameters) <= MAX_TASK_ATTEMPTS + FEW


async def test_deleting_finished_runs_reads_only_their_kinds(connection: Any) -> None:
    statement = parse_statement(read_sql("runs/queries.sql", "delete_finished_runs"))
    parameters = {"tenant": TENANT, "before": datetime.now(UTC)}
    assert await rows_read(connection, statement, parameters) <= 2 * ROWS / 100
    kinds = await connection.fetch("select distinct kind from runs")
    assert [row["kind"] for row in kinds] == ["evaluate"]


async def test_summaries_read_new_episodes_only(connection: Any) -> None:
    """Of 100,000 episodes, 100 are new. One session has 50,000, the others have 10 each."""
    statement = parse_statement(read_sql("maintenance/maintenance.sql", "sessions_to_summarize"))
    parameters = {
        "tenant": TENANT,
        "after_id": UUID(int=0),
        "page_size": 1_000,
        "min_episodes": 10,
        "limit": 50,
    }
    new = parameters | {"after_time": datetime.now(UTC) - timedelta(seconds=100)}
    assert await rows_read(connection, statement, new) <= 100 * 12
    first = parameters | {"after_time": datetime(1, 1, 1, tzinfo=UTC)}
    assert await rows_read(connection, statement, first) <= 1_000 * 12
    row = await connection.fetchrow(statement.text, *(first[name] for name in statement.parameters))
    assert (row["page_count"], len(row["sessions"])) == (1_000, 50)
    large = {"tenant": TENANT, "project": "p", "session": "large", "limit": 100}
    statement = parse_statement(read_sql("maintenance/maintenance.sql", "session_episodes"))
    assert await rows_read(connection, statement, large) <= 100 + FEW


async def test_figures_of_the_queue_count_up_to_a_limit(connection: Any) -> None:
    statement = parse_statement(read_sql("run_queue/queue.sql", "queue_figures"))
    parameters = {"limit": 1_000, "slots": ["work", "delivery", "document"]}
    lanes = 100
    assert await rows_read(connection, statement, parameters) <= 1_000 + 4 * lanes
    rows = await connection.fetch(
        statement.text, *(parameters[name] for name in statement.parameters)
    )
    due, delayed, running = rows
    assert due["count"] + delayed["count"] == 1_000
    assert due["age"] >= ROWS - 1, "the oldest of all, not of those counted"
    assert running["count"] == 1


async def test_deleting_old_runs_reads_a_batch(connection: Any) -> None:
    statement = parse_statement(read_sql("maintenance/maintenance.sql", "delete_old_runs"))
    parameters = {"tenant": TENANT, "before": datetime.now(UTC) + timedelta(days=1)}
    assert await rows_read(connection, statement, parameters | {"batch_size": 100}) <= 200


async def test_next_expiry_reads_the_oldest_rows(connection: Any) -> None:
    projects = parse_statement(read_sql("tenants/queries.sql", "list_projects"))
    assert await rows_read(connection, projects, {"tenant": TENANT}) <= FEW
    statement = parse_statement(read_sql("maintenance/maintenance.sql", "next_expiry"))
    days = ("event_days", "trace_days", "retrieval_days", "llm_call_days")
    parameters = {
        "tenant": TENANT,
        "projects": ["p"],
        "response_age": timedelta(days=1),
        "reply_age": timedelta(days=1),
        **{name: [30] for name in days},
    }
    assert await rows_read(connection, statement, parameters) <= FEW
