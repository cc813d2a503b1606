"""One tenant never meets another: the schema says so, and trying does not get through."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
from sqlalchemy import select

from memory_api.core.db import Sessions
from memory_api.memories.tables import MemoryRow
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant, assert_unprivileged
from tests.rules.conftest import NOT_FILLED, TwoTenants
from tests.rules.isolation import (
    SERVICE,
    TENANT,
    complaints,
    expected_rule,
    leaks,
    rolled_back,
    sow,
    tenant_tables,
)
from tests.rules.leak_table import MISTAKES, leak_table

SPOILERS = {
    "dropped": "drop policy {table}_tenant on {table}",
    "open": "alter policy {table}_tenant on {table} using (true) with check (true)",
    "open to read": "alter policy {table}_tenant on {table} using (true)",
    "open to write": "alter policy {table}_tenant on {table} with check (true)",
    "for everybody": "alter policy {table}_tenant on {table} to public",
    "a second one": "create policy more on {table} using (true)",
    "off": "alter table {table} disable row level security",
    "not forced": "alter table {table} no force row level security",
}


async def test_schema_separates_tenants(superuser: Any) -> None:
    assert await complaints(superuser) == []


@pytest.mark.parametrize("spoiler", SPOILERS)
async def test_broken_policy_is_detected(superuser: Any, spoiler: str) -> None:
    """In every other table, so that the rest shows that nothing else is complained about."""
    tables = await tenant_tables(superuser)
    for broken in (tables[::2], tables[1::2]):
        async with rolled_back(superuser):
            for table in broken:
                await superuser.execute(SPOILERS[spoiler].format(table=table))
            found = await complaints(superuser)
        assert {complaint.partition(":")[0] for complaint in found} == set(broken)


SCHEMA_SPOILERS = {
    "a table without tenant_id": "create table loose (id uuid primary key)",
    "a view of the owner's": "create view peep as select * from memories",
    "a function of the owner's": "create function lend() returns int security definer language sql"
    " as 'select 1'",
    "unique across tenants": "create unique index on traces (external_id) where false",
    "a key to tenants": "alter table traces add foreign key (tenant_id) references tenants"
    " not valid",
    "set null": "alter table memories add foreign key (tenant_id, trace_id) references traces"
    " on delete set null (trace_id) not valid",
}


@pytest.mark.parametrize("statement", SCHEMA_SPOILERS.values(), ids=SCHEMA_SPOILERS)
async def test_broken_schema_is_detected(superuser: Any, statement: str) -> None:
    async with rolled_back(superuser):
        await superuser.execute(statement)
        assert await complaints(superuser)


@pytest.mark.parametrize("role", SERVICE)
async def test_no_row_of_other_tenant_is_reachable(
    superuser: Any, two_tenants: TwoTenants, role: str
) -> None:
    async with rolled_back(superuser):
        await sow(superuser, (two_tenants.mine, two_tenants.other))
        await superuser.execute(f"set local role {role}")
        assert await leaks(superuser, two_tenants.mine, two_tenants.other) == []


async def test_open_policy_leaks(superuser: Any, two_tenants: TwoTenants) -> None:
    """The test above can fail: it finds each policy that is open, and no other."""
    tables = await tenant_tables(superuser)
    for opened in (tables[::2], tables[1::2]):
        async with rolled_back(superuser):
            await sow(superuser, (two_tenants.mine, two_tenants.other))
            for table in opened:
                await superuser.execute(SPOILERS["open"].format(table=table))
            await superuser.execute("set local role hansei_app")
            found = await leaks(superuser, two_tenants.mine, two_tenants.other)
        assert {f"{table}: can be read" for table in opened} <= set(found)
        assert {leak.partition(":")[0] for leak in found} == set(opened)


@pytest.mark.parametrize("role", SERVICE)
async def test_unbound_connection_sees_no_rows(
    superuser: Any, two_tenants: TwoTenants, role: str
) -> None:
    async with rolled_back(superuser):
        await sow(superuser, (two_tenants.mine, two_tenants.other))
        tables = await tenant_tables(superuser)
        for table in tables:
            assert await superuser.fetchval(f"select count(*) from {table}") > 0
        await superuser.execute(f"set local role {role}")
        for setting in ("reset hansei.tenant_id", "set local hansei.tenant_id = ''"):
            await superuser.execute(setting)
            for table in tables:
                assert await superuser.fetchval(f"select count(*) from {table}") == 0, table


async def test_usual_mistakes_leak_no_row(database: Database) -> None:
    """Beside copies of the tables without policies, where each of them leaks."""
    name = f"{database.name}_leaks"
    await database.server.clone(name)
    found = await leak_table(Database(database.server, name).url)
    await database.server.drop_database(name)
    assert {row for leaks in found.values() for row in leaks} == set(MISTAKES)
    assert len(found) > 40
    counts = {(t, m): count for t, leaks in found.items() for m, count in leaks.items()}
    assert [key for key, (here, _) in counts.items() if here] == []
    assert [key for key, (_, without) in counts.items() if not without] == []


async def test_invalid_binding_is_an_error(service: Any) -> None:
    async with rolled_back(service):
        await service.execute("set local hansei.tenant_id = 'everybody'")
        with pytest.raises(asyncpg.InvalidTextRepresentationError):
            await service.fetch("select * from memories")


async def test_tenants_with_same_data_share_no_id(superuser: Any, two_tenants: TwoTenants) -> None:
    for table in await tenant_tables(superuser):
        counts = [
            await superuser.fetchval(f"select count(*) from {table} where tenant_id = $1", tenant)
            for tenant in (two_tenants.mine, two_tenants.other)
        ]
        assert counts[0] == counts[1], table
        assert counts[0] > 0 or table in NOT_FILLED, table
    shared = (
        "select count(*) from {0} a join {0} b using (id)"
        " where a.tenant_id = $1 and b.tenant_id = $2"
    )
    for table in ("traces", "memories", "runs", "api_keys"):
        assert (
            await superuser.fetchval(shared.format(table), two_tenants.mine, two_tenants.other) == 0
        )


async def test_service_cannot_write_or_erase_history(service: Any, two_tenants: TwoTenants) -> None:
    forbidden = (
        "insert into memory_revisions select * from memory_revisions",
        "update memory_revisions set change_reason = 'another'",
        "delete from memory_revisions",
        "truncate memory_revisions",
        "delete from memories",
        "truncate memories",
        "alter table memories disable trigger memory_keep_insert",
        "drop trigger memory_keep_update on memories",
        "set local session_replication_role = 'replica'",
        "create table mine (id int)",
        "drop policy memories_tenant on memories",
        "alter table memories no force row level security",
        "set local role hansei_owner",
        "create role friend bypassrls",
        "alter role current_user bypassrls",
    )
    for statement in forbidden:
        async with rolled_back(service):
            await service.execute(f"set local hansei.tenant_id = '{two_tenants.mine}'")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await service.execute(statement)


async def test_worker_reads_tenant_ids_only(database: Database, two_tenants: TwoTenants) -> None:
    connection = await asyncpg.connect(database.url("hansei_worker"))
    try:
        known = {row["id"] for row in await connection.fetch("select id, status from tenants")}
        assert {two_tenants.mine, two_tenants.other} <= known
        for statement in (
            "select slug from tenants",
            "select * from tenants",
            "update tenants set status = 'closed'",
            "insert into tenants (id, slug) values (gen_random_uuid(), 'mine')",
            "delete from tenants",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)
    finally:
        await connection.close()


async def test_app_sees_only_its_tenant_row(database: Database, two_tenants: TwoTenants) -> None:
    connection = await asyncpg.connect(database.url("hansei_app"))
    try:
        assert await connection.fetch("select id from tenants") == []
        async with connection.transaction():
            await connection.execute(f"set local hansei.tenant_id = '{two_tenants.mine}'")
            assert [row["id"] for row in await connection.fetch("select id from tenants")] == [
                two_tenants.mine
            ]
            assert await connection.execute("update tenants set status = status") == "UPDATE 1"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("delete from tenants")
    finally:
        await connection.close()


async def test_tenants_table_has_three_policies(superuser: Any) -> None:
    own = await expected_rule(superuser, f"id = {TENANT}")
    rows = await superuser.fetch(
        "select roles::text[] roles, cmd, qual, with_check from pg_policies"
        " where tablename = 'tenants'"
    )
    assert sorted((*row["roles"], row["cmd"], row["qual"], row["with_check"]) for row in rows) == [
        ("hansei_app", "ALL", own, own),
        ("hansei_owner", "ALL", "true", "true"),
        ("hansei_worker", "SELECT", "true", None),
    ]


async def test_fixtures_refuse_privileged_roles(database: Database) -> None:
    for role in ("postgres", "hansei_owner"):
        with pytest.raises(AssertionError, match="tests must not run as"):
            await assert_unprivileged(database.url(role))
    for role in SERVICE:
        await assert_unprivileged(database.url(role))


async def test_fixtures_refuse_a_role_that_bypasses(superuser: Any, database: Database) -> None:
    await superuser.execute("create role peeper login bypassrls password 'p' in role hansei_app")
    try:
        url = database.url("hansei_app").split("@", 1)[1]
        with pytest.raises(AssertionError, match="bypasses"):
            await assert_unprivileged(f"postgresql://peeper:p@{url}")
    finally:
        await superuser.execute("drop role peeper")


async def test_row_security_applies_to_owner(database: Database, two_tenants: TwoTenants) -> None:
    connection = await asyncpg.connect(database.url("hansei_owner"))
    try:
        assert await connection.fetchval("select count(*) from memories") == 0
    finally:
        await connection.close()


async def test_generated_columns_are_stored(superuser: Any) -> None:
    kinds = await superuser.fetch(
        "select attrelid::regclass::text as table, attname, attgenerated::text kind"
        " from pg_attribute where attgenerated <> '' and attrelid::regclass::text not like 'pg_%'"
    )
    assert {row["kind"] for row in kinds} == {"s"}
    assert ("memories", "confidence_score") in {(row["table"], row["attname"]) for row in kinds}


async def test_binding_ends_with_its_transaction(
    runtime: Runtime, tenant: TestTenant, two_tenants: TwoTenants
) -> None:
    """A pooled connection that served one tenant shows nothing to the next caller."""
    async with runtime.sessions.for_tenant(two_tenants.mine) as session:
        assert (await session.scalars(select(MemoryRow.id))).all()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert (await session.scalars(select(MemoryRow.id))).all() == []
    for _ in range(runtime.settings.pool_size):
        async with runtime.sessions.without_tenant() as session:
            assert (await session.scalars(select(MemoryRow.id))).all() == []


async def test_binding_survives_rolled_back_savepoint(
    runtime: Runtime, two_tenants: TwoTenants
) -> None:
    async with runtime.sessions.for_tenant(two_tenants.mine) as session:
        nested = await session.begin_nested()
        await session.execute(select(MemoryRow.id))
        await nested.rollback()
        assert (await session.scalars(select(MemoryRow.id))).all()


@pytest.mark.parametrize("name", ["'; drop table memories; --", "", "not-a-uuid"])
async def test_only_a_uuid_can_be_bound(owner: Sessions, name: str) -> None:
    with pytest.raises(ValueError, match="UUID"):
        async with owner.for_tenant(name):  # type: ignore[arg-type]
            pass
