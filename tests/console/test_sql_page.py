"""The SQL page: rows of one tenant, saved statements, CSV, and what it refuses."""

from __future__ import annotations

import html
import re
from typing import Any

import asyncpg
import pytest

from memory_api.analytics import sql_statements
from memory_api.analytics.queries import get_sql_credential
from memory_api.analytics.sql_statements import StatementTimeout, run_statement
from memory_api.core.db import Sessions
from tests.commands.test_sql_logins import run
from tests.conftest import Database, TestTenant
from tests.console.conftest import ConsoleClient

PAGE = "/console/sql"


async def add_bullet(api: Any, playbook: str, content: str, **options: Any) -> None:
    delta = {"type": "ADD", "section": "pat", "content": content}
    url = f"/api/v1/playbooks/{playbook}/deltas"
    (await api.post(url, json={"deltas": [delta]}, **options)).raise_for_status()


def text_of(answer: Any) -> str:
    return html.unescape(answer.text)


async def test_page_without_login_names_the_command(
    owner_of: ConsoleClient, tenant: TestTenant
) -> None:
    assert f"hansei tenant sql-role {tenant.slug} --console" in (await owner_of.get(PAGE)).text
    refused = await owner_of.send(PAGE, statement="select 1")
    assert refused.status_code == 422


async def test_statement_shows_rows_of_its_tenant(
    credential: Any, api, make_tenant, http, owner_of: ConsoleClient
) -> None:
    await add_bullet(api, "mine", "Ask <b>before</b> a refund")
    other = await make_tenant()
    await add_bullet(http, "theirs", "Another tenant's secret", headers=other.auth())
    page = await owner_of.send(PAGE, statement="select key, content, -1.5 n, null x from bullets; ")
    assert page.status_code == 200
    assert "Ask &lt;b&gt;before&lt;/b&gt; a refund" in page.text
    assert "1 rows" not in page.text
    assert "One row in" in page.text
    assert "Another tenant" not in page.text
    csv = await owner_of.send(
        PAGE, statement="select content, -1.5 n, '=1+1' f from bullets", format="csv"
    )
    assert csv.headers["content-type"].startswith("text/csv")
    assert csv.text.splitlines() == ["content,n,f", "Ask <b>before</b> a refund,-1.5,'=1+1"]
    log = (await api.get("/api/v1/audit-log", params={"action": "statement.started"})).json()
    newest = log["items"][0]
    assert newest["actor"].startswith("key:")
    assert newest["target"] == f"role:{credential.role_name}"
    assert newest["details"]["statement"].startswith("select content")


async def test_saved_statements(credential: Any, tenant: TestTenant, console) -> None:
    admin = await console(tenant.keys["admin"])
    long = await admin.send(f"{PAGE}/saved", name="x" * 129, statement="select 2")
    assert re.search(r'value="x{129}".*?Name: At most 128 characters.', long.text, re.DOTALL)
    assert "select 2" in long.text
    for statement in ("select 1 as first", "select 2 as second"):
        saved = await admin.send(f"{PAGE}/saved", name="my question", statement=statement)
        assert "The statement was saved." in saved.text
    link = f"{PAGE}?saved="
    row = saved.text.split(link)[1].split('"')[0]
    reader = await console(tenant.keys["read"])
    assert "select 2 as second" in (await reader.get(link + row)).text
    assert "One row" in (await reader.send(PAGE, statement="select 2 as second")).text
    refused = await reader.send(f"{PAGE}/saved", name="x", statement="select 1")
    assert refused.status_code == 403
    assert (await reader.send(f"{PAGE}/saved/{row}/delete")).status_code == 403
    assert (await admin.send(f"{PAGE}/saved/{row}/delete")).status_code == 303
    assert "my question" not in (await admin.get(PAGE)).text


HOSTILE = {
    "select 1; select 2": "Only one statement",
    "delete from public.memories": "Only one SELECT",
    "delete from public.memories returning id": "Only one SELECT",
    "with gone as (delete from public.memories returning id) select * from gone": "data-modifying",
    "do $$ begin perform pg_sleep(1); end $$": "Only one SELECT",
    "copy (select 1) to program 'true'": "Only one SELECT",
    "copy public.memories to stdout": "Only one SELECT",
    "set role hansei_owner": "Only one SELECT",
    "reset role": "Only one SELECT",
    "commit": "Only one SELECT",
    "show all": "Only one SELECT",
    "explain select 1": "Only one SELECT",
    "select 1) as q (c), (select 2": "syntax error",
    "select 1 /*": "unterminated",
    "select $1::int": "in place of parameters",
    "select pg_read_file('/etc/passwd')": "permission denied",
    "select lo_import('/etc/passwd')": "permission denied",
    "select lo_create(0)": "permission denied for function lo_create",
    "select pg_terminate_backend(pid) from pg_stat_activity where usename <> current_user": "",
    "select set_config('transaction_read_only', 'off', false)": "read-write mode",
    "select set_config('role', 'hansei_owner', false)": "permission denied",
    "select set_config('session_authorization', 'hansei_owner', false)": "permission denied",
    "select * from public.sql_credentials": "permission denied",
    "select * from public.memories": "permission denied",
    "select * from public.api_keys": "permission denied",
    "select analytics.create_login(gen_random_uuid(), 'x')": "permission denied",
    "select query_to_xml('delete from public.memories', true, true, '')": "PostgreSQL refuses",
    "select no_such_column from bullets": "line 1: column",
}


async def test_hostile_statements_are_refused(
    credential: Any, api, owner_of: ConsoleClient
) -> None:
    await add_bullet(api, "mine", "Ask before a refund")
    for statement, reason in HOSTILE.items():
        answer = await owner_of.send(PAGE, statement=statement)
        if reason:
            assert answer.status_code == 422, statement
            assert reason in text_of(answer), statement
            assert statement in text_of(answer), "the statement stays in the form"
    kept = await owner_of.send(PAGE, statement="select count(*) n from bullets")
    assert '<td class="number">1</td>' in kept.text


async def test_settings_lead_to_no_other_tenant(
    credential: Any, make_tenant, http, owner_of: ConsoleClient
) -> None:
    other = await make_tenant()
    await add_bullet(http, "theirs", "Another tenant's secret", headers=other.auth())
    for table in ("bullets", "bullet_versions", "playbook_sizes", "costs"):
        statement = (
            f"select set_config('hansei.tenant_id', '{other.id}', false), (select count(*) from"
            f" {table} where tenant_id = '{other.id}') as theirs"
        )
        answer = await owner_of.send(PAGE, statement=statement)
        assert '<td class="number">0</td>' in answer.text, table


async def test_long_results_are_cut_off(credential: Any, owner_of: ConsoleClient) -> None:
    many = await owner_of.send(PAGE, statement="select n from generate_series(1, 1000000) n")
    assert "500 rows" in many.text
    assert "The result is longer" in many.text
    csv = await owner_of.send(
        PAGE, statement="select n from generate_series(1, 1000000) n", format="csv"
    )
    assert len(csv.text.splitlines()) == 10_001
    wide = await owner_of.send(PAGE, statement="select repeat('x', 100000000) as wide")
    assert wide.status_code == 200
    assert len(wide.text) < 50_000


@pytest.mark.parametrize(
    "statement",
    [
        "select pg_sleep(60)",
        # The first rows switch off the limit of the session. The process has a limit of its own.
        "select set_config('statement_timeout', '0', false),"
        " case when n > 600 then pg_sleep(60)::text end from generate_series(1, 9999) n",
    ],
)
async def test_long_statements_are_canceled(
    credential: Any, database: Database, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_statements, "CLIENT_EXTRA_SECONDS", 0.7)
    with pytest.raises(StatementTimeout):
        await run_statement(database.url("hansei_app"), credential, statement, 9999, seconds=0.3)
    superuser = await asyncpg.connect(database.url("postgres"))
    active = "select count(*) from pg_stat_activity where usename = $1 and state = 'active'"
    assert await superuser.fetchval(active, credential.role_name) == 0
    await superuser.close()


async def test_connection_that_does_not_close_in_time_is_no_lost_one(
    credential: Any, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL prints an array of millions without looking for a cancellation."""

    close = asyncpg.Connection.close

    async def close_late(
        connection: asyncpg.Connection[Any], *, timeout: float | None = None
    ) -> None:
        await close(connection, timeout=timeout)
        if timeout == sql_statements.CLOSE_SECONDS:
            raise TimeoutError

    monkeypatch.setattr(asyncpg.Connection, "close", close_late)
    with pytest.raises(StatementTimeout):
        await run_statement(
            database.url("hansei_app"), credential, "select pg_sleep(60)", 1, seconds=0.3
        )


@pytest.mark.one_server("Citus filters its shards from the driver's six lookups: 2 s each")
async def test_type_that_the_driver_cannot_read_is_named(
    credential: Any, owner_of: ConsoleClient
) -> None:
    refused = await owner_of.send(PAGE, statement="select most_common_vals from pg_stats")
    assert refused.status_code == 422
    assert "anyarray" in text_of(refused)
    cast = await owner_of.send(PAGE, statement="select most_common_vals::text from pg_stats")
    assert cast.status_code == 200


async def test_keys_of_a_project_do_not_run_sql(
    credential: Any, api, console, tenant: TestTenant
) -> None:
    made = await api.post("/api/v1/keys", json={"scopes": ["write"], "project_id": "one"})
    client = await console(made.json()["key"])
    assert "Not for keys of one project" in (await client.get(PAGE)).text
    assert (await client.send(PAGE, statement="select 1")).status_code == 403


async def test_dropped_login_is_named(
    as_owner: None, tenant: TestTenant, owner: Sessions, owner_of: ConsoleClient
) -> None:
    assert (await run(tenant.slug, "--console")).exit_code == 0
    first = await get_role(owner, tenant)
    assert (await run(tenant.slug, "--console")).exit_code == 0  # replaces the first
    second = await get_role(owner, tenant)
    assert first != second
    assert (await run(tenant.slug, "--drop", first)).exit_code == 1
    assert (await run(tenant.slug, "--drop", second)).exit_code == 0
    assert "No login yet" in (await owner_of.get(PAGE)).text


async def get_role(owner: Sessions, tenant: TestTenant) -> str:
    async with owner.for_tenant(tenant.id) as session:
        row = await get_sql_credential(session)
    assert row
    return row.role_name
