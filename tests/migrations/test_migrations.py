"""Up, down to nothing, and up again, on databases with data; waiting for nobody for long."""

from __future__ import annotations

import asyncio
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

from apps.memory_api.core import migrate
from apps.memory_api.core.db import Base, driver_url
from apps.memory_api.memory.hybrid import definition
from migrations.statements import FOLDER
from tests.postgres import Server

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
class Empty:
    """A database of its own, with nothing in it but the vector type."""

    owner: str
    superuser: str


@pytest.fixture
async def empty(server: Server, worker_id: str) -> AsyncIterator[Empty]:
    name = f"migrating_{worker_id}"
    await server.run(f"drop database if exists {name} with (force)")
    await server.run(f"create database {name} owner hansei_owner")
    await server.run("create extension vector", name)
    yield Empty(server.url("hansei_owner", name), server.url("postgres", name))
    await server.run(f"drop database {name} with (force)")


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
                "insert into scopes (tenant_id, scope, project_id, area, name)"
                " values ($1, 1, 'p', 'kind', 'insight')",
                tenant,
            )
            await connection.execute(
                "insert into memories (tenant_id, id, project_id, layer, kind, scope, content,"
                " searchable_text, source, tokenizer, fingerprint, helpful, harmful)"
                " values ($1, $2, 'p', 'rm', 'insight', 1, 'Look twice', 'Look twice', 'test',"
                " 't', '', 3, 1)",
                tenant,
                memory,
            )
    finally:
        await connection.close()
    return memory


async def test_up_down_up_on_a_database_with_data(empty: Empty) -> None:
    await migrate.upgrade(empty.owner)
    assert await ask(empty.owner, "select version_num from alembic_version") == [migrate.head()]
    tables = await ask(empty.owner, TABLES)
    await remember(empty.owner, uuid4())
    await migrate.downgrade(empty.owner, "base")
    assert await ask(empty.owner, TABLES) == ["alembic_version"]
    assert await ask(empty.superuser, OBJECTS) == []
    await migrate.upgrade(empty.owner)
    assert await ask(empty.owner, TABLES) == tables
    await remember(empty.owner, uuid4())


async def test_each_step_goes_down_and_up_again_with_data(empty: Empty) -> None:
    """Every revision alone, newest first, with rows in the tables of the first."""
    await migrate.upgrade(empty.owner)
    tenant = uuid4()
    memory = await remember(empty.owner, tenant)
    script = ScriptDirectory.from_config(migrate.config())
    for revision in script.walk_revisions():
        if revision.down_revision is None:
            break
        await migrate.downgrade(empty.owner, str(revision.down_revision))
        await migrate.upgrade(empty.owner, revision.revision)
        await migrate.downgrade(empty.owner, str(revision.down_revision))
    assert await ask(empty.superuser, "select id from memories") == [memory]
    await migrate.upgrade(empty.owner)
    assert await ask(empty.superuser, "select id from memories") == [memory]


async def test_an_old_revision_installs_its_own_search(empty: Empty) -> None:
    """Not today's: each has a text of its own, and the last is what the service is made for."""
    texts = {path.stem[:4]: path.read_text() for path in (FOLDER).glob("*_search.sql")}
    assert texts[max(texts)] == definition(), "freeze definition() for a new migration"
    assert len(set(texts.values())) == len(texts)
    source = "select prosrc from pg_proc where proname = 'hansei_search'"
    for revision, text in sorted(texts.items()):
        await migrate.upgrade(empty.owner, revision)
        (installed,) = await ask(empty.owner, source)
        assert installed in text, revision
    for revision in sorted(texts, reverse=True)[1:]:
        await migrate.downgrade(empty.owner, revision)
        (installed,) = await ask(empty.owner, source)
        assert installed in texts[revision], revision


async def test_up_again_does_nothing(empty: Empty) -> None:
    await migrate.upgrade(empty.owner)
    tenant = uuid4()
    memory = await remember(empty.owner, tenant)
    await migrate.upgrade(empty.owner)
    assert await ask(empty.superuser, "select id from memories") == [memory]


async def test_there_is_one_line_of_revisions() -> None:
    script = ScriptDirectory.from_config(migrate.config())
    assert len(script.get_heads()) == 1
    for revision in script.walk_revisions():
        source = Path(revision.path).read_text(encoding="utf-8")
        for step in ("upgrade", "downgrade"):
            body = source.split(f"def {step}()", 1)[1].split("\ndef ", 1)[0]
            assert "set local lock_timeout" in body, f"{revision.revision} {step}"


async def test_the_models_equal_the_migrations(empty: Empty) -> None:
    """`alembic check`, and the same once more with everything it can compare."""
    await migrate.upgrade(empty.owner)
    engine = create_async_engine(driver_url(empty.owner), poolclass=NullPool)

    def check(connection: Connection) -> list[Any]:
        command.check(migrate.config(connection))
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        return [
            difference
            for difference in compare_metadata(context, Base.metadata)
            if "pgqueuer" not in str(difference)
        ]

    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(check) == []
    finally:
        await engine.dispose()


async def test_the_check_can_fail(empty: Empty) -> None:
    await migrate.upgrade(empty.owner)
    await ask(empty.owner, "alter table traces add column extra int")
    engine = create_async_engine(driver_url(empty.owner), poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            with pytest.raises(Exception, match="New upgrade operations detected"):
                await connection.run_sync(lambda c: command.check(migrate.config(c)))
    finally:
        await engine.dispose()


@pytest.mark.parametrize(
    ("label", "opened_by"),
    [
        ("static-minilm-256/1", ("static", None, None)),
        ("openai/org/embed@64", ("openai", "org/embed", 64)),
        ("fastembed/BAAI/bge", ("fastembed", "BAAI/bge", None)),
    ],
)
async def test_what_a_tenant_has_vectors_of_becomes_its_model(
    empty: Empty, label: str, opened_by: tuple[str, str | None, int | None]
) -> None:
    await migrate.upgrade(empty.owner)
    await migrate.downgrade(empty.owner, "0007")
    tenant, silent = uuid4(), uuid4()
    await remember(empty.owner, tenant)
    connection = await asyncpg.connect(empty.superuser)
    try:
        await connection.execute("insert into tenants (id, slug) values ($1, 'silent')", silent)
        for number, name in ((1, "static-minilm-256/0"), (2, label)):
            await connection.execute(
                "insert into labels values ($1, $2, 'model', $3)", tenant, number, name
            )
        await connection.execute(
            "insert into memory_vectors (tenant_id, scope, model, n, kind, confidence, importance,"
            " created_at, tag_ids, emb) select tenant_id, 1, 2, n, 1, 1, 1, now(), '{}', '[1,0]'"
            " from memories"
        )
    finally:
        await connection.close()
    await migrate.upgrade(empty.owner)
    columns = "tenant_id, label, provider, name, dimensions, base_url, state"
    connection = await asyncpg.connect(empty.superuser)
    try:
        rows = await connection.fetch(f"select {columns} from embedding_models")
    finally:
        await connection.close()
    assert [tuple(row) for row in rows] == [(tenant, label, *opened_by, None, "active")]


async def test_history_and_generated_columns_work_after_migrating(empty: Empty) -> None:
    await migrate.upgrade(empty.owner)
    tenant = uuid4()
    memory = await remember(empty.owner, tenant)
    assert await ask(empty.superuser, "select confidence_score from memories") == [0.75]
    for statement in (
        "update memories set content = 'Look thrice', change_reason = 'better'",
        "update memories set helpful = helpful + 1",
        "update memories set strength = 0.5, metadata = '{\"a\": 1}'",
    ):
        await ask(empty.superuser, statement, tenant=tenant)
    kept = await ask(
        empty.superuser,
        "select (revision, content, reason)::text from memory_revisions"
        " where tenant_id = $1 and memory_id = $2 order by revision",
        tenant,
        memory,
    )
    assert kept == ['(1,"Look twice",)', '(2,"Look thrice",better)']
    assert await ask(empty.superuser, "select confidence_score from memories") == [0.8]
    with pytest.raises(asyncpg.PostgresError):
        await ask(empty.superuser, "update memories set confidence_score = 1")
    with pytest.raises(asyncpg.CheckViolationError):
        await ask(empty.superuser, "update memories set status = 'lost'")
    with pytest.raises(asyncpg.CheckViolationError):
        await ask(empty.superuser, "update memories set importance = 1.5")


async def test_a_held_lock_ends_a_migration_and_changes_nothing(empty: Empty) -> None:
    """Somebody reads a table in a long transaction: the migration gives up and can be repeated."""
    await migrate.upgrade(empty.owner)
    tables = await ask(empty.owner, TABLES)
    reader = await asyncpg.connect(empty.superuser)
    try:
        async with reader.transaction():
            await reader.fetch("select * from memories")
            with pytest.raises(DBAPIError, match="lock timeout"):
                await migrate.downgrade(empty.owner, "base")
            assert await ask(empty.owner, TABLES) == tables
            assert await ask(empty.owner, "select version_num from alembic_version") == [
                migrate.head()
            ]
    finally:
        await reader.close()
    await migrate.downgrade(empty.owner, "base")


async def test_two_at_once_end_well(empty: Empty) -> None:
    await asyncio.gather(*(migrate.upgrade(empty.owner) for _ in range(3)))
    assert await ask(empty.owner, "select version_num from alembic_version") == [migrate.head()]
    await remember(empty.owner, uuid4())


BULLET = (
    "insert into memories (tenant_id, id, n, project_id, layer, kind, scope, key, content,"
    " searchable_text, keywords, source, tokenizer, fingerprint, version) overriding system value"
    " values ($1, $2, 50, 'p', 'rm', 'bullet', 1, 'pat-1', 'one', 'own', '{k}', 't', 't', '', 1)"
)
CHANGES = (
    "update memories set content = 'two', searchable_text = E'two\\nk', version = 4 where n = 50",
    "update memories set searchable_text = 'own', version = 6 where n = 50",
    "update memories set status = 'deleted', version = 14 where n = 50",
    "update memories set helpful = 3 where n = 50",
)


@pytest.mark.parametrize("known", [True, False], ids=["by the trigger", "from the revisions"])
async def test_spans_of_what_changed_before_and_after_they_were_kept(
    empty: Empty, known: bool
) -> None:
    """From the revisions they are the same, but that a search text of its own is today's and what
    changed no word made no span.
    """
    await migrate.upgrade(empty.owner)
    if not known:
        await migrate.downgrade(empty.owner, "0010")
    tenant, bullet = uuid4(), uuid4()
    await remember(empty.owner, tenant)
    await ask(empty.superuser, BULLET, tenant, bullet, tenant=tenant)
    for statement in CHANGES:
        await ask(empty.superuser, statement, tenant=tenant)
    await migrate.upgrade(empty.owner)
    spans = await ask(
        empty.superuser,
        "select (since, until, width, content, searchable_text, status, keywords)::text"
        " from bullet_spans where tenant_id = $1 and bullet_id = $2 order by until",
        tenant,
        bullet,
    )
    assert spans == (
        ["(1,4,1,one,own,active,{k})", "(4,6,1,two,,active,{k})", "(6,14,3,two,own,active,{k})"]
        if known
        else ["(1,4,1,one,,active,{k})", "(4,14,3,two,own,active,{k})"]
    )
