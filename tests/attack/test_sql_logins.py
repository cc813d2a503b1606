"""What a read-only login of one tenant does to the others, and to the machine."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import time
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

VISIBLE = "select count(*) from bullets"
CLOSED = (
    *(asyncpg.PostgresConnectionError, asyncpg.AdminShutdownError),
    *(asyncpg.InterfaceError, asyncpg.InternalClientError),
)
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
    if not limits.exists() or os.environ.get("HANSEI_TEST_PG", "embedded") != "embedded":
        pytest.skip("not Linux, or the operator limits the memory of the server")
    line = next(each for each in limits.read_text().splitlines() if "data size" in each)
    assert line.split()[3:5] == [str(MAX_MEMORY_BYTES)] * 2
    await login.execute("set work_mem = '2GB'")
    with pytest.raises(asyncpg.OutOfMemoryError):
        await login.fetchval("select length(repeat('x', 1073741000))")
    assert await login.fetchval("select 1") == 1  # the server goes on


async def test_suspension_ends_a_login(
    api, runtime: Runtime, worker_runtime: Runtime, tenant: TestTenant, open_login, owner: Sessions
) -> None:
    bullet = {"content": "Check the order first."}
    (await api.put("/api/v1/playbooks/desk", json={"bullets": []})).raise_for_status()
    (await api.post("/api/v1/playbooks/desk/bullets", json=bullet)).raise_for_status()
    login = await open_login(tenant)
    assert await login.fetchval(VISIBLE) == 1
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


REFUSAL = r"define or change|temporary|must be owner"


@pytest.mark.parametrize(
    "definition",
    [
        "create rule r as on update to public.tenants do instead nothing",
        "alter index public.tenants_pkey depends on extension vector",
        "create trigger t after insert on public.tickets execute function nothing()",
        pytest.param(
            "create statistics s on id, status from public.tenants",
            marks=pytest.mark.one_server("Citus locks the table before its event triggers run"),
        ),
        "comment on table public.api_keys is 'x'",
        "alter table public.memories add x int",
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
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match=REFUSAL):
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


SECRET = "the number of the vault is seven"
QUESTIONS = (
    "select 1 from bullets where playbook = '{}'",
    "select 1 from bullets where starts_with(content, '{}') and content = any(array['{}'])",
    "select 1 from bullets where ('{\"{}\": 1}'::jsonb)[playbook] is not null"
    " and ('{\"x\": 1}'::jsonb)[content] is not null",
    "select 1 from bullets where ('[0:2]={t,f,t}'::bool[])[helpful] and title = '{}'",
    "select 1 from uncovered_queries where query ^@ '{}'",
    "select 1 from bullets('2000-01-01', 'infinity', '{}')",
    "select 1 from churn(p_playbook => '{}')",
    "select 1 from playbook_at('{}')",
    "select 1 from bullets b left join bullet_versions v on v.content = '{}' and v.key = b.key",
)
"""What would read other rows, or estimate others, if a condition reached a table."""


@pytest.fixture
async def secret(api, database: Database) -> str:
    """The name of a playbook of another tenant, and the texts and queries in it, one of them long
    enough to be stored out of line.
    """
    long = " ".join(secrets.token_hex(8) for _ in range(500))
    texts: list[dict[str, str]] = [{"content": SECRET}, {"content": long, "title": SECRET}]
    deltas = [{"type": "ADD", "section": "oth"} | each for each in texts]
    changed = await api.post(f"/api/v1/playbooks/{SECRET}/deltas", json={"deltas": deltas})
    changed.raise_for_status()
    words = {"query_text": SECRET}
    (await api.post(f"/api/v1/playbooks/{SECRET}/search", json=words)).raise_for_status()
    await database.server.run("vacuum analyze", database.name)  # the planner knows the values
    return SECRET


@pytest.mark.parametrize("question", QUESTIONS)
async def test_plans_and_counters_do_not_show_rows_of_others(
    secret: str, make_tenant, open_login, database: Database, question: str
) -> None:
    """In a new session each, where the first row of a table would load a function, and later. A
    session also reads catalogs, which other sessions may just have changed: hence several rounds.
    """
    name = await (await open_login(await make_tenant())).fetchval("select current_user")
    url = make_url(database.url("hansei_owner")).set(username=name, password=PASSWORD)
    statement = f"explain (analyze, buffers, verbose, timing off, summary off) {question}"
    for _ in range(9):
        seen: list[list[list[str]]] = []
        for value in (secret, "an absent text"):
            login = await asyncpg.connect(url.render_as_string(hide_password=False))
            await login.execute("set enable_indexscan = off; set enable_bitmapscan = off")
            plans = [await login.fetch(statement.replace("{}", value)) for _ in range(7)]
            seen.append([[row[0].replace(value, "") for row in plan] for plan in plans])
            await login.close()
        if seen[0] == seen[1]:
            break
    assert seen[0] == seen[1]
    assert not any("Seq Scan" in line or "Index" in line for line in seen[0][-1])


async def test_estimates_do_not_show_rows_of_others(secret: str, make_tenant, open_login) -> None:
    """An estimate of many rows shows small differences, and the order of rows follows it."""
    login = await open_login(await make_tenant())
    join = (
        "explain select 1 from bullets p left join generate_series(1, 1000000000000) g"
        " on p.content ^@ $${}$$ and p.created_at > $$2026-01-01$$ and p.helpful > 1"
    )
    order = (
        "select string_agg(h::text, ' ') from (select h from generate_series(1, 1000) h left join"
        " (select g from bullets p left join (select g from generate_series(1, 2000) g) g"
        " on p.content ^@ $${}$$ offset 0) x on x.g = h) y"
    )
    for statement in (join, order):
        answers = [
            str(await login.fetch(statement.replace("{}", value))).replace(value, "")
            for value in (secret, "an absent text")
        ]
        assert answers[0] == answers[1], statement


async def test_plans_inside_functions_are_not_printed(tenant: TestTenant, open_login) -> None:
    """They have estimates from statistics of all tenants."""
    login = await open_login(tenant)
    printed: list[str] = []
    login.add_log_listener(lambda _, message: printed.append(message.message))
    await login.execute("set client_min_messages = log; set debug_print_plan = on")
    for statement in ("select 1 from bullets", "select 1 from playbook_at('p')"):
        printed.clear()
        await login.fetch(statement)
        assert printed == ["plan:"], "that of the statement of the login"


async def test_login_has_no_statistics_and_no_table(
    tenant: TestTenant, open_login, database: Database
) -> None:
    login = await open_login(tenant)
    for statement in (
        "select pg_stat_get_xact_blocks_fetched('pg_class'::regclass)",
        "select pg_stat_get_xact_numscans('pg_class'::regclass)",
        "select pg_stat_get_tuples_inserted('pg_class'::regclass)",
        "select * from pg_stat_activity",
        "select * from pg_locks",
        "select * from pg_stat_database",
        "select pg_relation_size('pg_class'::regclass)",
        "select pg_database_size(current_database())",
        "select pg_current_wal_lsn()",
        "select * from public.memories",
        "select id from public.traces",
        "select * from public.llm_call_details",
        "select * from questions.bullets(null, now(), now(), null, null)",
        "select * from analytics.logins",
        "select analytics.bind_login()",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.fetch(statement)
    own = "select count(*) from pg_stats where schemaname in ('public', 'questions', 'analytics')"
    assert await login.fetchval(own) == 0
    superuser = await asyncpg.connect(database.url("postgres"))
    readable = await superuser.fetch(
        "select oid::regclass::text from pg_class where relkind in ('r', 'p', 'm', 'S')"
        " and relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)"
        " and has_any_column_privilege('hansei_analyst', oid, 'select')"
    )
    watching = await superuser.fetch(
        "select oid::regprocedure::text from pg_proc where proname like 'pg\\_stat\\_get\\_%'"
        " and has_function_privilege('hansei_analyst', oid, 'execute')"
    )
    await superuser.close()
    assert (readable, watching) == ([], [])


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


async def test_login_reads_no_text_of_documents_and_traces(
    api, tenant: TestTenant, open_login, database: Database
) -> None:
    sent = trace() | {"playbook": "support"}
    (await api.post("/api/v1/traces", json=sent)).raise_for_status()
    bullet = {"content": "Check the order first."}
    (await api.post("/api/v1/playbooks/support/bullets", json=bullet)).raise_for_status()
    memory = {"kind": "reflection", "content": SECRET}
    created = (await api.post("/api/v1/memories", json=memory)).raise_for_status().json()["id"]
    login = await open_login(tenant)
    superuser = await asyncpg.connect(database.url("postgres"))
    views = await login.fetch(
        "select relname from pg_class where relnamespace = 'analytics'::regnamespace"
        " and relkind = 'v'"
    )
    assert len(views) > 20
    for kind in ("chunk", "episode", "verdict"):
        await superuser.execute("update memories set kind = $1 where id = $2", kind, created)
        for (view,) in views:
            rows = str(await login.fetch(f"select v::text from {view} v"))
            assert SECRET not in rows, view
            assert str(sent["events"][0]["content"]) not in rows, view
    assert await login.fetchval(VISIBLE) == 1  # the views are not empty
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
