"""Work and the answer kept for it are one transaction: there is both or neither."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from tests.http.calls import count, trace
from tests.http.problems import assert_problem

KEY = {"Idempotency-Key": "one"}


@pytest.fixture
async def no_commit(database) -> AsyncIterator[asyncpg.Connection]:
    """Transactions that store a trace fail when they commit, until the function is replaced."""
    owner = await asyncpg.connect(database.url("postgres"))
    await owner.execute(
        "create function refuse_commit() returns trigger language plpgsql as $$ begin"
        " raise exception 'no'; end $$;"
        "create constraint trigger refuse_commit after insert on traces"
        " deferrable initially deferred for each row execute function refuse_commit()"
    )
    yield owner
    await owner.execute("drop function if exists refuse_commit cascade")
    await owner.close()


async def test_an_answer_is_not_kept_for_work_that_was_not_committed(
    api, tenant, runtime, no_commit: asyncpg.Connection
) -> None:
    first = await api.post("/api/v1/traces", json=trace(), headers=KEY)
    assert_problem(first, 500, "internal_error")
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["idempotency_keys"]) == (0, 0)
    await no_commit.execute("drop function refuse_commit cascade")
    second = await api.post("/api/v1/traces", json=trace(), headers=KEY)
    assert second.status_code == 201
    assert "idempotency-replayed" not in second.headers
    assert (await count(runtime, tenant.id))["traces"] == 1


async def test_the_answer_is_written_in_the_transaction_of_the_work(api, tenant, runtime) -> None:
    await api.post("/api/v1/traces", json=trace(), headers=KEY)
    async with runtime.sessions.tenant(tenant.id) as session:
        work = await session.scalar(text("select xmin::text from traces"))
        kept = await session.scalar(text("select xmin::text from idempotency_keys"))
    assert work == kept
