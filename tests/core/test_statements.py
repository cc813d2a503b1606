"""Statements that the driver executes in the transaction of a session."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
import sqlalchemy

from memory_api.core.db import Sessions
from memory_api.core.db_errors import DISK_STATE, DatabaseUnavailable
from memory_api.core.resources import PACKAGE, read_sql
from memory_api.core.statements import fetch_rows, parse_statement
from memory_api.runs.lifecycle import new_run
from memory_api.runtime import Runtime
from tests.conftest import TestTenant

RAISES_DISK_FULL = """create or replace function raise_disk_full() returns void language plpgsql as
$$ begin raise exception 'full' using errcode = '53100'; end $$"""
FIND_RUN = parse_statement("select id, kind, input::text as text from runs where id = :run")


def test_parameters_are_numbered_once() -> None:
    statement = parse_statement("select :a, cast(:b as int[]), :a, x[1:2], 'now'::date")
    assert statement.text == "select $1, cast($2 as int[]), $1, x[1:2], 'now'::date"
    assert statement.parameters == ("a", "b")
    assert parse_statement("select x ~ '[0-9[:space:]]'").parameters == ()


def test_parameters_of_all_files_are_those_that_sqlalchemy_finds() -> None:
    blocks = [
        (file.relative_to(PACKAGE).as_posix(), name)
        for file in sorted(PACKAGE.rglob("*.sql"))
        for name in re.findall(r"^-- name: (\w+)$", file.read_text(), re.MULTILINE)
    ]
    assert len(blocks) > 50
    for file, name in blocks:
        found = sqlalchemy.text(read_sql(file, name)).compile().params
        assert set(parse_statement(read_sql(file, name)).parameters) == set(found), (file, name)


async def test_pending_changes_are_seen(runtime: Runtime, tenant: TestTenant) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = new_run(session, "evaluate", project_id="default")
        (row,) = await fetch_rows(session, FIND_RUN, {"run": run.id})
        assert (row.id, row["kind"], row.text) == (run.id, "evaluate", "{}")
        with pytest.raises(AttributeError):
            _ = row.missing


async def test_other_tenant_sees_nothing(
    runtime: Runtime, tenant: TestTenant, make_tenant: Callable[[], Awaitable[TestTenant]]
) -> None:
    other_tenant = await make_tenant()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = new_run(session, "evaluate", project_id="default")
    async with runtime.sessions.for_tenant(other_tenant.id) as session:
        assert await fetch_rows(session, FIND_RUN, {"run": run.id}) == []


async def test_errors_are_translated(
    runtime: Runtime, owner: Sessions, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DISK_STATE, "is_full", False)
    async with owner.without_tenant() as session:
        await session.execute(sqlalchemy.text(RAISES_DISK_FULL))
    raises = parse_statement("select raise_disk_full()")
    with pytest.raises(asyncpg.DiskFullError):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await fetch_rows(session, raises, {})
    async with owner.without_tenant() as session:
        await session.execute(sqlalchemy.text("drop function raise_disk_full()"))
    assert DISK_STATE.is_full
    ends = parse_statement("select pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(DatabaseUnavailable):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await fetch_rows(session, ends, {})
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await fetch_rows(session, FIND_RUN, {"run": tenant.id}) == []
