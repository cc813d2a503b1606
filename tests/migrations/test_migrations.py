"""Up, down to nothing, and up again, on databases with data; waiting for nobody for long."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_api.commands.database import CommandFailed, DatabaseUrls
from memory_api.commands.database_checks import check_functions
from memory_api.commands.migrate import migrate_and_grant
from memory_api.core import migrations
from memory_api.core.db import Base, Sessions, driver_url, open_engine
from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parents[2]
TABLES = "select tablename from pg_tables where schemaname = 'public' order by 1"
OBJECTS = """
select 'function ' || proname from pg_proc
where pronamespace = 'public'::regnamespace and not exists
  (select from pg_depend d where d.objid = pg_proc.oid and d.deptype = 'e')
union all select 'type ' || typname from pg_type
where typnamespace = 'public'::regnamespace and typtype = 'e'
union all select 'sequence ' || relname from pg_class
where relnamespace = 'public'::regnamespace and relkind = 'S'
"""


@dataclass(frozen=True)
class TestDatabase:
    """The URLs of a database that one test has."""

    __test__ = False

    owner: str
    superuser: str


@pytest.fixture
async def empty(server: Server, worker_id: str) -> AsyncIterator[TestDatabase]:
    """With nothing in it but the vector type."""
    name = f"migrating_{worker_id}"
    await server.drop_database(name)
    await server.create_database(name)
    await server.run("create extension vector", name)
    yield TestDatabase(server.url("hansei_owner", name), server.url("postgres", name))
    await server.drop_database(name)


@pytest.fixture
async def migrated(server: Server, worker_id: str) -> AsyncIterator[TestDatabase]:
    """A copy of the database that the test run has migrated."""
    name = f"migrated_{worker_id}"
    await server.clone(name)
    yield TestDatabase(server.url("hansei_owner", name), server.url("postgres", name))
    await server.drop_database(name)


async def ask(url: str, statement: str, *arguments: Any, tenant: UUID | None = None) -> list[Any]:
    """The first column of one statement's answer."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"set hansei.tenant_id = '{tenant or ''}'")
        return [row[0] for row in await connection.fetch(statement, *arguments)]
    finally:
        await connection.close()


async def remember(url: str, tenant: UUID) -> UUID:
    """A tenant with a trace, a scope and a memory, written by the owner bound to it."""
    memory = uuid4()
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(f"set local hansei.tenant_id = '{tenant}'")
            await connection.execute("insert into tenants (id, slug) values ($1, 'one')", tenant)
            await connection.execute(
                "insert into traces (tenant_id, id, project_id, content_hash)"
                " values ($1, $2, 'p', '')",
                tenant,
                uuid4(),
            )
            await connection.execute(
                "insert into scopes (tenant_id, id, project_id, type, name)"
                " values ($1, 1, 'p', 'kind', 'insight')",
                tenant,
            )
            await connection.execute(
                "insert into memories (tenant_id, id, project_id, layer, kind, scope_id, content,"
                " searchable_text, source, tokenizer, fingerprint, helpful, harmful)"
                " values ($1, $2, 'p', 'rm', 'insight', 1, 'Look twice', 'Look twice', 'test',"
                " 't', '', 3, 1)",
                tenant,
                memory,
            )
    finally:
        await connection.close()
    return memory


async def test_upgrade_downgrade_upgrade_with_data(empty: TestDatabase) -> None:
    await migrations.upgrade(empty.owner)
    assert await ask(empty.owner, "select version_num from alembic_version") == [
        migrations.head_revision()
    ]
    tables = await ask(empty.owner, TABLES)
    await remember(empty.owner, uuid4())
    await migrations.downgrade(empty.owner, "base")
    assert await ask(empty.owner, TABLES) == ["alembic_version"]
    assert await ask(empty.superuser, OBJECTS) == []
    await migrations.upgrade(empty.owner)
    assert await ask(empty.owner, TABLES) == tables
    await remember(empty.owner, uuid4())


async def test_second_upgrade_changes_nothing(migrated: TestDatabase) -> None:
    tenant = uuid4()
    memory = await remember(migrated.owner, tenant)
    await migrations.upgrade(migrated.owner)
    assert await ask(migrated.superuser, "select id from memories") == [memory]


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("0024", "a commit that was never released \\(revision 0024\\)"),
        (migrations.head_revision(), "a commit that was never released"),
        ("0999_later", "revision 0999_later, which this release does not know"),
    ],
)
async def test_unknown_revision_is_one_clear_error(
    empty: TestDatabase, revision: str, message: str
) -> None:
    await ask(empty.owner, "create table alembic_version (version_num varchar(32) not null)")
    await ask(empty.owner, f"insert into alembic_version values ('{revision}')")
    with pytest.raises(CommandFailed, match=message) as caught:
        await migrate_and_grant(DatabaseUrls("", "", empty.owner))
    assert "\n" not in str(caught.value)
    assert await ask(empty.owner, TABLES) == ["alembic_version"]


async def test_revisions_are_linear() -> None:
    script = ScriptDirectory.from_config(migrations.alembic_config())
    assert len(script.get_heads()) == 1
    for revision in script.walk_revisions():
        assert revision.revision == Path(revision.path).stem, "`hansei up` compares the two"
        source = Path(revision.path).read_text(encoding="utf-8")
        for step in ("upgrade", "downgrade"):
            body = source.split(f"def {step}()", 1)[1].split("\ndef ", 1)[0]
            assert "set local lock_timeout" in body, f"{revision.revision} {step}"


async def test_models_match_migrations(migrated: TestDatabase) -> None:
    """`alembic check`, and the same once more with everything it can compare."""
    engine = create_async_engine(driver_url(migrated.owner), poolclass=NullPool)

    def check(connection: Connection) -> list[Any]:
        command.check(migrations.alembic_config(connection))
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return compare_metadata(context, Base.metadata)

    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(check) == []
    finally:
        await engine.dispose()


async def test_alembic_check_passes_as_a_command(migrated: TestDatabase) -> None:
    """In a process of its own: `migrations/env.py` itself has to import every table."""
    check = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "alembic", "check"),
        cwd=ROOT,
        env={
            **os.environ,
            "HANSEI_OWNER_URL": migrated.owner,
            "PYTHONPATH": f"{ROOT / 'apps'}:{ROOT / 'sdk'}:{ROOT}",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await check.communicate()
    assert check.returncode == 0, output.decode()
    assert "No new upgrade operations detected." in output.decode()


CATALOG = """
select 'column', c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
       case when a.attnotnull then 'not null' end, a.attidentity::text, a.attgenerated::text,
       pg_get_expr(d.adbin, d.adrelid))
from pg_attribute a
join pg_class c on c.oid = a.attrelid
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where c.relnamespace = any($1::regnamespace[]) and c.relkind = 'r' and a.attnum > 0
  and not a.attisdropped
union all
select 'constraint', c.conname, c.conrelid::regclass || ' ' || pg_get_constraintdef(c.oid)
from pg_constraint c
join pg_class t on t.oid = c.conrelid  -- without the shards of Citus, which are hidden there
where c.connamespace = any($1::regnamespace[]) and c.contype in ('p', 'u', 'f')
union all
select 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
from pg_index i
join pg_class c on c.oid = i.indrelid
where c.relnamespace = any($1::regnamespace[]) and not i.indisprimary
"""


async def test_schema_of_models_equals_migrated_schema(
    migrated: TestDatabase, empty: TestDatabase
) -> None:
    """Also what Alembic does not compare: keys, generated columns and the columns of indexes."""

    async def catalog(url: str) -> dict[str, str]:
        connection = await asyncpg.connect(url)
        try:
            rows = await connection.fetch(CATALOG, ["public"])
        finally:
            await connection.close()
        return {
            # A default may be written with its type.
            f"{kind} {name}": re.sub(r"'([^']*)'::[a-z ]+(\[\])?", r"\1", text)
            for kind, name, text in rows
            if not name.startswith(("alembic_version",))
        }

    engine = create_async_engine(driver_url(empty.owner), poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()
    expected, found = await catalog(migrated.superuser), await catalog(empty.superuser)
    different = {
        name: (expected.get(name), found.get(name))
        for name in expected | found
        if expected.get(name) != found.get(name)
    }
    assert different == {}


async def test_check_detects_extra_column(migrated: TestDatabase) -> None:
    await ask(migrated.owner, "alter table traces add column extra int")
    engine = create_async_engine(driver_url(migrated.owner), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            with pytest.raises(Exception, match="New upgrade operations detected"):
                await connection.run_sync(lambda c: command.check(migrations.alembic_config(c)))
    finally:
        await engine.dispose()


async def test_history_and_generated_columns_work_after_migrating(migrated: TestDatabase) -> None:
    tenant = uuid4()
    memory = await remember(migrated.owner, tenant)
    assert await ask(migrated.superuser, "select confidence_score from memories") == [0.75]
    for statement in (
        "update memories set content = 'Look thrice', change_reason = 'better'",
        "update memories set helpful = helpful + 1",
        "update memories set confidence = 0.5, metadata = '{\"a\": 1}'",
    ):
        await ask(migrated.superuser, statement, tenant=tenant)
    kept = await ask(
        migrated.superuser,
        "select (revision, content, change_reason)::text from memory_revisions"
        " where tenant_id = $1 and memory_id = $2 order by revision",
        tenant,
        memory,
    )
    assert kept == ['(1,"Look twice",)', '(2,"Look thrice",better)']
    assert await ask(migrated.superuser, "select confidence_score from memories") == [0.8]
    with pytest.raises(asyncpg.PostgresError):
        await ask(migrated.superuser, "update memories set confidence_score = 1")
    with pytest.raises(asyncpg.CheckViolationError):
        await ask(migrated.superuser, "update memories set status = 'lost'")
    with pytest.raises(asyncpg.CheckViolationError):
        await ask(migrated.superuser, "update memories set importance = 1.5")


@pytest.mark.one_server("a distributed database is not migrated down")
async def test_blocked_migration_fails_and_changes_nothing(migrated: TestDatabase) -> None:
    """Somebody reads a table in a long transaction: the migration gives up and can be repeated."""
    tables = await ask(migrated.owner, TABLES)
    reader = await asyncpg.connect(migrated.superuser)
    try:
        async with reader.transaction():
            await reader.fetch("select * from memories")
            with pytest.raises(DBAPIError, match="lock timeout"):
                await migrations.downgrade(migrated.owner, "base")
            assert await ask(migrated.owner, TABLES) == tables
            assert await ask(migrated.owner, "select version_num from alembic_version") == [
                migrations.head_revision()
            ]
    finally:
        await reader.close()
    await migrations.downgrade(migrated.owner, "base")


async def test_concurrent_migrations_succeed(empty: TestDatabase) -> None:
    await asyncio.gather(*(migrations.upgrade(empty.owner) for _ in range(3)))
    assert await ask(empty.owner, "select version_num from alembic_version") == [
        migrations.head_revision()
    ]
    await remember(empty.owner, uuid4())


BULLET = (
    "insert into memories (tenant_id, id, seq, project_id, layer, kind, scope_id, key, content,"
    " searchable_text, keywords, source, tokenizer, fingerprint, playbook_version)"
    " overriding system value"
    " values ($1, $2, 50, 'p', 'rm', 'bullet', 1, 'pat-1', 'one', 'own', '{k}', 't', 't', '', 1)"
)
CHANGES = (
    "update memories set content = 'two', searchable_text = E'two\\nk', playbook_version = 4"
    " where seq = 50",
    "update memories set searchable_text = 'own', playbook_version = 6 where seq = 50",
    "update memories set status = 'deleted', playbook_version = 14 where seq = 50",
    "update memories set helpful = 3 where seq = 50",
)


async def test_spans_of_what_changed(migrated: TestDatabase) -> None:
    """A change of the search text alone makes a span too; a change of no word makes none."""
    tenant, bullet = uuid4(), uuid4()
    await remember(migrated.owner, tenant)
    await ask(migrated.superuser, BULLET, tenant, bullet, tenant=tenant)
    for statement in CHANGES:
        await ask(migrated.superuser, statement, tenant=tenant)
    spans = await ask(
        migrated.superuser,
        "select (from_version, until_version, length_class, content, searchable_text,"
        " status, keywords)::text"
        " from bullet_spans where tenant_id = $1 and bullet_id = $2 order by until_version",
        tenant,
        bullet,
    )
    assert spans == [
        "(1,4,1,one,own,active,{k})",
        "(4,6,1,two,,active,{k})",
        "(6,14,3,two,own,active,{k})",
    ]


async def test_doctor_reports_functions_of_another_version(migrated: TestDatabase) -> None:
    async def check() -> tuple[bool, str]:
        sessions = Sessions(open_engine(migrated.owner, pool_size=1, codecs=False))
        try:
            result = await check_functions(sessions)
        finally:
            await sessions.close()
        return result.ok, result.message

    assert await check() == (True, "59 functions are those of this release")
    for name, before, after in (
        ("wilson", "1.959963984540054", "1.96"),
        ("analytics.playbook_at", "<> 'deleted'", "<> 'archived'"),
    ):
        statement = migrations.function_statements()[name]
        assert before in statement
        changed = statement.replace(before, after).replace(
            "create function", "create or replace function"
        )
        await ask(migrated.owner, changed)
    assert await check() == (*(False, "not those of this release: wilson, analytics.playbook_at"),)
