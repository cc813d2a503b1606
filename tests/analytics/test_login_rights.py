"""A login of a BI tool reads its tenant and nothing else, whatever it tries."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import asyncpg
import pytest

from bench.analytics_rows import SAMPLE, fill
from tests.conftest import Database, TestTenant

REFUSED = (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)
TABLES = """
select format('%I.%I', c.relnamespace::regnamespace, c.relname) name from pg_class c
where c.relkind in ('r', 'p', 'v', 'm') and has_any_column_privilege(c.oid, 'select')
  and c.relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
  and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
order by 1
"""
VISIBLE = "select count(*) from analytics.bullets"


async def other_rows(login: asyncpg.Connection, other: UUID) -> dict[str, int]:
    """The rows of another tenant that the login sees, by table and view."""
    found: dict[str, int] = {}
    for table in [row["name"] for row in await login.fetch(TABLES)]:
        count = await login.fetchval(f"select count(*) from {table} where tenant_id = $1", other)
        found |= {table: count} if count else {}
    return found


@pytest.fixture
async def other(make_tenant, database: Database) -> TestTenant:
    """A second tenant with rows in every table that a login reads."""
    made = await make_tenant()
    await fill(database.url("postgres"), made.id, SAMPLE)
    return made


async def test_login_sees_its_tenant_alone(
    sample: TestTenant, other: TestTenant, open_login
) -> None:
    login, other_login = await open_login(sample), await open_login(other)
    tables = {row["name"] for row in await login.fetch(TABLES)}
    assert all(name.startswith("analytics.") for name in tables), "no table"
    assert await login.fetchval(VISIBLE) > 10
    assert await other_rows(login, other.id) == {}
    seen = await other_rows(other_login, other.id)
    assert tables - seen.keys() == {  # they are about the last days
        *("analytics.effects", "analytics.improvement"),
        *("analytics.movers", "analytics.verdict_drift"),
    }


async def test_login_cannot_choose_another_tenant(
    sample: TestTenant, other: TestTenant, open_login, database: Database
) -> None:
    login = await open_login(sample)
    mine = await login.fetchval(VISIBLE)
    await login.execute(f"select set_config('hansei.tenant_id', '{other.id}', false)")
    await login.execute(f"set hansei.tenant_id = '{other.id}'")
    assert await login.fetchval(VISIBLE) == mine
    assert await other_rows(login, other.id) == {}
    for role in ("hansei_app", "hansei_worker", "hansei_owner", "hansei_analyst", "postgres"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute(f"set role {role}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.execute(f"set session authorization {role}")
    await login.execute("set row_security = off")
    with suppress(asyncpg.InsufficientPrivilegeError):  # the nodes of a cluster keep it on
        assert await login.fetchval(VISIBLE) == mine
    await login.execute("reset row_security")
    other_login = await open_login(other)
    name = await other_login.fetchval("select current_user")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await login.execute(f"set role {name}")


WRITES = (
    "insert into analytics.logins (role_name, tenant_id) values (current_user, gen_random_uuid())",
    "update analytics.logins set tenant_id = null",
    "delete from analytics.logins",
    "update public.memories set content = 'x'",
    "delete from public.bullet_verdicts",
    "insert into public.traces (tenant_id, id, project_id, content_hash)"
    " values (gen_random_uuid(), gen_random_uuid(), 'p', '')",
    "truncate public.memories",
    "alter table public.memories disable row level security",
    "create policy open on public.memories using (true)",
    "create table mine (x int)",
    "create temporary table mine (x int)",
    "create view analytics.mine as select 1",
    "create function analytics.mine() returns int language sql as 'select 1'",
    "select analytics.create_login(gen_random_uuid(), 'x')",
    "select analytics.drop_login(gen_random_uuid(), 'x')",
    "create role mine",
    "alter role hansei_app password 'x'",
    "grant hansei_owner to current_user",
    "select pg_read_file('/etc/passwd')",
    "copy (select 1) to program 'true'",
    "copy public.memories to '/dev/null'",
    "select lo_import('/etc/passwd')",
    "select pg_terminate_backend(pid) from pg_stat_activity where usename <> current_user limit 1",
    "select * from public.traces",
    "select id from public.traces",
    "select * from public.api_keys",
    "select * from pg_authid",
    "select passwd from pg_shadow",
    "select * from analytics.logins",
    "select * from questions.bullets(null, now(), now(), null, null)",
    "select analytics.bind_login()",
    "select public.hansei_search(null, null, null, null)",
)


@pytest.mark.parametrize("statement", WRITES)
async def test_login_is_read_only(tenant: TestTenant, open_login, statement: str) -> None:
    """Also after it switches its read-only default off."""
    login = await open_login(tenant)
    await login.execute("set default_transaction_read_only = off")
    refused = (*REFUSED, asyncpg.UndefinedFunctionError, asyncpg.InvalidGrantorError)
    with pytest.raises(refused):
        await login.execute(statement)


async def test_limits(tenant: TestTenant, open_login) -> None:
    login = await open_login(tenant)
    shown = {
        name: await login.fetchval(f"show {name}")
        for name in ("statement_timeout", "default_transaction_read_only", "search_path")
    }
    assert shown == {
        "statement_timeout": "30s",
        "default_transaction_read_only": "on",
        "search_path": "analytics",
    }
    await login.execute("set statement_timeout = '1ms'")
    with pytest.raises(asyncpg.QueryCanceledError):
        await login.execute("select pg_sleep(5)")


async def test_others_are_anonymous(
    sample: TestTenant, other: TestTenant, open_login, database: Database
) -> None:
    """Names of logins are random, and neither sessions nor counters of others are visible."""
    login = await open_login(sample)
    await open_login(other)
    for hidden in ("pg_stat_activity", "pg_locks", "pg_stat_user_tables", "pg_stat_database"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login.fetch(f"select * from {hidden}")
    roles = str(await login.fetch("select rolname from pg_roles"))
    for name in (other.slug, str(other.id), other.id.hex):
        assert name not in roles


async def test_login_without_tenant_sees_nothing(
    sample: TestTenant, open_login, database: Database
) -> None:
    login = await open_login(sample)
    name = await login.fetchval("select current_user")
    superuser = await asyncpg.connect(database.url("postgres"))
    await superuser.execute(
        "update analytics.logins set role_name = 'x' where role_name = $1", name
    )
    try:
        assert await login.fetchval(VISIBLE) == 0
        await superuser.execute(f"set role {name}")
        assert await superuser.fetchval(VISIBLE) == 0
    finally:
        await superuser.execute("reset role")
        await superuser.execute(
            "update analytics.logins set role_name = $1 where role_name = 'x'", name
        )
        await superuser.close()
