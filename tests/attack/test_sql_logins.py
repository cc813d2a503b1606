"""What a read-only login of one tenant does to the others, and to the machine."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import time
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import asyncpg
import psutil
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError

from memory_api.analytics.login_priority import LOWEST_PRIORITY, lower_priority
from memory_api.analytics.queries import LoginSession, list_login_sessions
from memory_api.core.db import Sessions
from memory_api.core.tenant_locks import acquire_tenant_lock
from memory_api.embedded.cluster import MAX_MEMORY_BYTES
from memory_api.runtime import Runtime
from tests.analytics.conftest import PASSWORD
from tests.analytics.conftest import open_login as open_login
from tests.api.test_health_access import stranger as stranger
from tests.conftest import Database, TestTenant
from tests.support.api_calls import trace

VISIBLE = "select count(*) from runs"
CLOSED = (
    *(asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError),
    *(asyncpg.InterfaceError, asyncpg.InternalClientError),
)
READ_COLUMNS = """
with readers as (
    select 'pg_rewrite'::regclass class_id, r.oid
    from pg_rewrite r
    join pg_class v on v.oid = r.ev_class
    join pg_namespace n on n.oid = v.relnamespace
    where n.nspname = 'analytics'
       or v.relname in ('llm_call_details', 'lesson_costs', 'counted_verdicts')
    union all
    select 'pg_proc'::regclass, p.oid
    from pg_proc p
    where p.pronamespace = 'analytics'::regnamespace and not p.prosecdef
    union all
    select 'pg_policy'::regclass, p.oid
    from pg_policy p
    where 'hansei_analyst'::regrole = any (p.polroles)
)
select distinct c.relname, a.attname
from pg_depend d
join readers r on r.class_id = d.classid and r.oid = d.objid
join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid
join pg_class c on c.oid = d.refobjid
where d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0 and c.relkind in ('r', 'p')
  and c.relnamespace = 'public'::regnamespace
"""
GRANTED_COLUMNS = """
select c.relname, a.attname
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace and not a.attisdropped
  and has_column_privilege('hansei_analyst', c.oid, a.attnum, 'select')
"""

LOCKS = (
    "select pg_advisory_lock(g) from generate_series(1, 25000) g",
    "select pg_try_advisory_lock(1)",
    "select pg_advisory_xact_lock(1, 2)",
    "select pg_try_advisory_xact_lock_shared(1)",
    "do $$ begin perform pg_advisory_lock(1); end $$",
    "select lo_create(0)",
    "select lo_from_bytea(0, 'x')",
    "select pg_notify('tickets', 'x')",
    "select pg_logical_emit_message(false, 'x', repeat('x', 50000000))",
    "select pg_export_snapshot() from generate_series(1, 100000)",
    "select pg_current_xact_id()",
    "select txid_current()",
)


@pytest.mark.parametrize("statement", LOCKS)
async def test_login_takes_no_lock_and_sends_no_notification(
    tenant: TestTenant, open_login, statement: str
) -> None:
    login = await open_login(tenant)
    await login.execute("set default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await login.execute(statement)


@pytest.mark.parametrize("role", ["hansei_owner", "hansei_app", "hansei_worker"])
async def test_roles_of_the_service_reach_no_file_of_the_server(
    database: Database, role: str
) -> None:
    """What was taken from all logins was given to these: with it, the functions for files, which
    only a superuser had."""
    connection = await asyncpg.connect(database.url(role))
    try:
        for statement in (
            "select lo_import('/etc/passwd')",
            "select lo_import('/etc/passwd', 424242)",
            "select lo_export(424242, '/tmp/written')",
            "select lo_create(0)",
            "select pg_read_file('/etc/passwd')",
            "copy (select 1) to program 'true'",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_names_of_locks_have_a_secret(
    runtime: Runtime, tenant: TestTenant, database: Database
) -> None:
    superuser = await asyncpg.connect(database.url("postgres"))
    held = (
        "select (classid::bigint << 32) | objid::bigint from pg_locks where locktype = 'advisory'"
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await acquire_tenant_lock(session, "scopes")
        keys = {row[0] for row in await superuser.fetch(held)}
    name = f"scopes/{tenant.id}"
    assert keys
    assert await superuser.fetchval("select hashtextextended($1, 0)", name) not in keys
    seed = await superuser.fetchval("select lock_seed from installation")
    assert await superuser.fetchval("select hashtextextended($1, $2)", name, seed) in keys
    await superuser.close()


async def test_not_ready_when_no_write_works(http, database: Database) -> None:
    """As when PostgreSQL has no free lock: reads work, and each write fails."""
    await database.server.run(
        "create function no_lock() returns trigger language plpgsql as $$ begin"
        " raise exception 'out of shared memory' using errcode = '53200'; end $$;"
        " create trigger no_lock before insert on write_probes execute function no_lock()",
        database.name,
    )
    try:
        answer = await http.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json()["database"]["status"] == "unavailable"
    finally:
        await database.server.run("drop function no_lock cascade", database.name)
    assert (await http.get("/health/ready")).status_code == 200


async def test_login_cannot_fill_the_disk(tenant: TestTenant, open_login) -> None:
    login = await open_login(tenant)
    assert await login.fetchval("show temp_file_limit") == "256MB"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await login.execute("set temp_file_limit = '-1'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await login.fetch("select set_config('temp_file_limit', '-1', false)")
    assert await login.fetchval("show log_min_messages") == "fatal", "an error can have 50 MB"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await login.execute("set log_min_messages = 'debug5'")
    await login.execute("set statement_timeout = '5min'")
    with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="temporary file size"):
        await login.fetchval(
            "select max(a) from (select repeat(md5(g::text), 8) a"
            " from generate_series(1, 2000000) g order by random()) x"
        )


async def test_login_can_notify_and_the_queue_is_small(tenant: TestTenant, open_login) -> None:
    """PostgreSQL cannot forbid NOTIFY, and a transaction that listens holds the queue: 8 GB of the
    disk by default. That a full queue stops no write: tests/run_queue/test_notifications.py.
    """
    login = await open_login(tenant)
    await login.execute("notify x, 'y'")
    if login.get_server_version().major < 17:
        pytest.skip("PostgreSQL 16 has no such setting")
    assert await login.fetchval("show max_notify_queue_pages") == "8192"


async def test_login_cannot_use_all_memory(
    tenant: TestTenant, open_login, database: Database
) -> None:
    login = await open_login(tenant)
    limits = Path(f"/proc/{await login.fetchval('select pg_backend_pid()')}/limits")
    if not limits.exists():
        pytest.skip("not Linux, or the server runs in a container")
    line = next(each for each in limits.read_text().splitlines() if "data size" in each)
    assert line.split()[3:5] == [str(MAX_MEMORY_BYTES)] * 2
    await login.execute("set work_mem = '2GB'")
    with pytest.raises(asyncpg.OutOfMemoryError):
        await login.fetchval("select length(repeat('x', 1073741000))")
    assert await login.fetchval("select 1") == 1  # the server goes on


async def test_suspension_ends_a_login(
    api, runtime: Runtime, worker_runtime: Runtime, tenant: TestTenant, open_login, owner: Sessions
) -> None:
    (await api.post("/api/v1/traces?reflect=always", json=trace())).raise_for_status()
    login = await open_login(tenant)
    assert await login.fetchval(VISIBLE) > 0
    sleeping = asyncio.create_task(login.fetchval("select pg_sleep(25)"))
    await asyncio.sleep(0.1)
    other = await open_login(tenant)
    await set_status(owner, tenant, "suspended")
    try:
        assert await other.fetchval(VISIBLE) == 0
        assert await end_sessions(worker_runtime) == 2
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError)):
            await sleeping
    finally:
        await set_status(owner, tenant, "active")


async def set_status(owner: Sessions, tenant: TestTenant, status: str) -> None:
    async with owner.for_tenant(tenant.id) as session:
        await session.execute(
            text("update tenants set status = :status where id = :id"),
            {"status": status, "id": tenant.id},
        )


async def end_sessions(runtime: Runtime, longest: timedelta = timedelta(minutes=10)) -> int:
    async with runtime.sessions.without_tenant() as session:
        statement = text("select analytics.end_login_sessions(:longest)")
        return int(str(await session.scalar(statement, {"longest": longest})))


async def test_long_transactions_of_logins_end(
    worker_runtime: Runtime, tenant: TestTenant, open_login
) -> None:
    """They keep VACUUM from removing rows, and a listening one fills the queue of notifications."""
    login, idle = await open_login(tenant), await open_login(tenant)
    await login.execute("listen tickets; begin; select 1")
    assert await end_sessions(worker_runtime) == 0
    assert await end_sessions(worker_runtime, timedelta(0)) == 1
    assert await idle.fetchval("select 1") == 1
    with pytest.raises(CLOSED):
        await login.fetchval("select 1")


@pytest.mark.parametrize(
    "definition",
    [
        "create rule r as on update to tenants do instead nothing",
        "alter index tenants_pkey depends on extension vector",
        "create trigger t after insert on tickets execute function nothing()",
        "create statistics s on id, status from tenants",
        "comment on table api_keys is 'x'",
        "alter table memories add x int",
        "alter default privileges grant select on tables to public",
        "create temporary table x (y int)",
    ],
)
async def test_definitions_of_logins_wait_for_no_lock(
    worker_runtime: Runtime, owner: Sessions, tenant: TestTenant, open_login, definition: str
) -> None:
    """PostgreSQL locks the table before it checks the rights, and all others would wait behind."""
    login = await open_login(tenant)
    await login.execute("set default_transaction_read_only = off")
    await login.execute("set lock_timeout = '5s'")
    async with owner.without_tenant() as session:
        await session.execute(text("lock table tenants, tickets, api_keys, memories in share mode"))
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=r"define or change|temporary"):
            await login.execute(definition)


async def test_long_transactions_of_logins_end_while_a_table_is_locked(
    worker_runtime: Runtime, owner: Sessions, tenant: TestTenant, open_login
) -> None:
    login = await open_login(tenant)
    await login.execute("begin; select 1")
    async with owner.without_tenant() as session:
        await session.execute(text("lock table tenants in access exclusive mode"))
        with pytest.raises(DBAPIError, match="lock timeout"):
            await end_sessions(worker_runtime, timedelta(0))
    with pytest.raises(CLOSED):
        await login.fetchval("select 1")


CONDITIONS = {
    "playbooks": ("name = {0}", "starts_with(name, {0})", "name >= {0} and name <= {0}"),
    "memories": (
        *("content = {0}", "starts_with(content, {0})", "content = any(array[{0}])"),
        *("starts_with(title, {0}) and content >= ''", "title = any(array[{0}]) and content > ''"),
    ),
    "retrievals": ("query = {0}", "starts_with(query, {0})"),
}
VALUES = {
    "text": "x",
    "uuid": "00000000-0000-0000-0000-000000000000",
    "integer": "1",
    "bigint": "1",
    "timestamp with time zone": "2026-01-01",
    "boolean": "t",
}
SECRET = "the number of the vault is seven"


@pytest.mark.parametrize("table", CONDITIONS)
async def test_statistics_do_not_show_rows_of_others(
    api, make_tenant, tenant: TestTenant, open_login, table: str
) -> None:
    """PostgreSQL may evaluate a condition of the login before the policy. What it counts must not
    depend on whether a row of another tenant meets the condition.
    """
    long = " ".join(secrets.token_hex(8) for _ in range(500))
    texts: list[dict[str, str]] = [{"content": SECRET}, {"content": long, "title": SECRET}]
    deltas = [{"type": "ADD", "section": "oth"} | each for each in texts]
    changed = await api.post(f"/api/v1/playbooks/{SECRET}/deltas", json={"deltas": deltas})
    changed.raise_for_status()
    words = {"query_text": SECRET}
    (await api.post(f"/api/v1/playbooks/{SECRET}/search", json=words)).raise_for_status()
    login = await open_login(await make_tenant())
    for method in ("indexscan", "bitmapscan", "indexonlyscan"):
        await login.execute(f"set enable_{method} = off")
    for condition in CONDITIONS[table]:
        plans = [await _plan(login, table, condition.format(f"'{v}'")) for v in (SECRET, "absent")]
        assert plans[0] == plans[1], condition
        statement = f"select count(*) from {table} where {condition}"
        seen = {await _blocks_read(login, statement.format(f"'{v}'")) for v in (SECRET, "absent")}
        assert len(seen) == 1, condition


async def test_conditions_without_an_operator_show_nothing(api, make_tenant, open_login) -> None:
    """They come before the policy, whose function must not read catalogs for the first row."""
    bullet = {"type": "ADD", "section": "oth", "content": SECRET}
    changed = await api.post(f"/api/v1/playbooks/{SECRET}/deltas", json={"deltas": [bullet]})
    changed.raise_for_status()
    other = await make_tenant()
    seen: list[str] = []
    for value in (SECRET, "absent"):
        login = await open_login(other)
        condition = f"('{{\"{value}\": 1}}'::jsonb)[name] is not null"
        rows = await login.fetch(
            "explain (analyze, buffers, timing off, summary off, costs off)"
            f" select 1 from playbooks where {condition}"
        )
        seen.append(next(row[0] for row in rows if "Buffers" in row[0]))
    assert seen[0] == seen[1]


async def test_planner_has_no_values_of_texts(database: Database, owner: Sessions) -> None:
    """EXPLAIN shows estimates, which come from values of all tenants."""
    statement = """
        select c.relname || '.' || a.attname from pg_class c
        join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
          and a.atttypid in ('text'::regtype, 'text[]'::regtype)
          and has_column_privilege('hansei_analyst', c.oid, a.attnum, 'select')
          and a.attstattarget is distinct from 0
    """
    async with owner.without_tenant() as session:
        assert (await session.scalars(text(statement))).all() == []


async def test_policies_are_evaluated_before_conditions_of_logins(
    tenant: TestTenant, open_login, owner: Sessions
) -> None:
    login = await open_login(tenant)
    for method in ("indexscan", "bitmapscan", "indexonlyscan"):
        await login.execute(f"set enable_{method} = off")
    columns = await login.fetch(
        "select c.table_name, c.column_name, c.data_type from information_schema.columns c"
        " join information_schema.tables t using (table_schema, table_name)"
        " where table_schema = 'public' and column_name <> 'tenant_id'"
        " and table_type = 'BASE TABLE' and data_type = any($1)",
        list(VALUES),
    )
    seen: set[str] = set()
    for table, column, kind in columns:
        value = f"'{VALUES[kind]}'::{kind}"
        plan = await login.fetch(
            f"explain (costs off) select 1 from public.{table}"
            f" where {column} >= {value} and {column} = any(array[{value}])"
        )
        filters = [row[0].strip() for row in plan if row[0].strip().startswith("Filter:")]
        assert filters, (table, column)
        assert all(each.startswith("Filter: (is_own(tenant_id") for each in filters), (
            table,
            filters,
        )
        seen.add(table)
    assert {"memories", "memory_vectors", "playbooks", "retrievals", "traces", "runs"} <= seen


async def _plan(login: asyncpg.Connection, table: str, condition: str) -> list[str]:
    """What EXPLAIN counts, at the third time: before, it reads pages of catalogs."""
    statement = (
        "explain (analyze, buffers, timing off, summary off, costs off)"
        f" select 1 from {table} where {condition}"
    )
    for _ in range(3):
        lines = [row[0].strip() for row in await login.fetch(statement)]
    return [line for line in lines if line.startswith(("Buffers", "Rows Removed"))]


async def _blocks_read(login: asyncpg.Connection, statement: str) -> int:
    counter = "pg_stat_get_xact_blocks_fetched('public.tenants'::regclass)"
    async with login.transaction():
        before = await login.fetchval(f"select {counter}")
        assert await login.fetchval(statement) == 0
        return await login.fetchval(f"select {counter}") - before


async def test_logins_get_the_cpu_time_that_is_left(
    worker_runtime: Runtime, tenant: TestTenant, open_login
) -> None:
    login = await open_login(tenant)
    assert await login.fetchval("show max_parallel_workers_per_gather") == "0"
    pid = await login.fetchval("select pg_backend_pid()")
    if not psutil.pid_exists(pid):
        pytest.skip("the server runs in a container")
    sessions = await list_login_sessions(worker_runtime.sessions)
    session = next(each for each in sessions if each.pid == pid)
    own = psutil.Process().nice()
    lower_priority([*sessions, replace(session, pid=os.getpid()), replace(session, pid=2**30)])
    assert psutil.Process(pid).nice() == LOWEST_PRIORITY
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists() and os.geteuid() == group.stat().st_uid:
        assert group.read_text().rsplit(maxsplit=1)[1] == str(LOWEST_PRIORITY)
    assert psutil.Process().nice() == own, "no process of PostgreSQL"


def test_parallel_workers_get_the_cpu_time_that_is_left() -> None:
    title = "postgres: parallel worker for PID 77"
    with subprocess.Popen(
        [title], executable=shutil.which("cat"), stdin=subprocess.PIPE
    ) as process:
        worker = psutil.Process(process.pid)
        while " ".join(worker.cmdline()) != title:  # the kernel sets it a moment later
            time.sleep(0.01)
        before = worker.nice()
        lower_priority([LoginSession(process.pid, "hansei_sql_x", 78)])
        assert worker.nice() == before, "of another session"
        lower_priority([LoginSession(process.pid, "hansei_sql_x", 77)])
        assert worker.nice() == LOWEST_PRIORITY
        process.kill()


async def test_login_reads_the_columns_of_the_views_alone(
    tenant: TestTenant, open_login, database: Database
) -> None:
    superuser = await asyncpg.connect(database.url("postgres"))
    read, granted = (defaultdict[str, set[str]](set), defaultdict[str, set[str]](set))
    for found, statement in ((read, READ_COLUMNS), (granted, GRANTED_COLUMNS)):
        for table, column in await superuser.fetch(statement):
            found[table].add(column)
    await superuser.close()
    agent_runs = granted.pop("agent_runs")
    assert agent_runs >= read.pop("agent_runs")
    assert not agent_runs & {"query", "plan", "result", "error", "options", "feedback_answer"}
    assert granted == read
    login = await open_login(tenant)
    for statement in (
        "select input from runs",
        "select result from runs",
        "select ground_truth from traces",
        "select reason, evidence from bullet_verdicts",
        "select metadata from memories",
        "select error_detail from llm_calls",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.fetch(statement)
    with pytest.raises(asyncpg.UndefinedColumnError):
        await login.fetch("select error_detail from llm_call_details")
    await login.fetch("select * from llm_call_details")


async def test_login_reads_no_document(
    api, tenant: TestTenant, open_login, database: Database
) -> None:
    superuser = await asyncpg.connect(database.url("postgres"))
    memory = {"kind": "reflection", "content": "The report was late because of the backup."}
    created = (await api.post("/api/v1/memories", json=memory)).raise_for_status().json()["id"]
    login = await open_login(tenant)
    assert await login.fetchval("select count(*) from memories where id = $1", created) == 1
    for kind in ("chunk", "episode", "verdict"):
        await superuser.execute("update memories set kind = $1 where id = $2", kind, created)
        assert await login.fetchval("select count(*) from memories where id = $1", created) == 0
    await superuser.close()


async def test_login_reaches_no_other_database(
    tenant: TestTenant, open_login, database: Database
) -> None:
    """In `postgres`, a login took locks until the writes of all tenants failed."""
    login = await open_login(tenant)
    name = await login.fetchval("select current_user")
    url = make_url(database.url("hansei_owner")).set(username=name, password=PASSWORD)
    for other in ("postgres", "template1"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await asyncpg.connect(url.set(database=other).render_as_string(hide_password=False))
