"""Work and the answer kept for it are one transaction: there is both or neither."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest
from sqlalchemy import text

from memory_api.api import idempotency
from memory_api.core.db_errors import NoFreeConnection
from tests.support.api_calls import NDJSON, count, ndjson, trace
from tests.support.problems import assert_problem

KEY = {"Idempotency-Key": "one"}


@pytest.fixture
async def no_commit(database) -> AsyncIterator[asyncpg.Connection]:
    """Transactions that store a trace fail when they commit, until the function is replaced."""
    owner = await asyncpg.connect(database.url("postgres"))
    await owner.execute(
        "create function refuse_commit() returns trigger language plpgsql as $$ begin"
        " raise exception 'no'; end $$"
    )
    await owner.execute(
        "create constraint trigger refuse_commit after insert on traces"
        " deferrable initially deferred for each row execute function refuse_commit()"
    )
    yield owner
    await owner.execute("drop function if exists refuse_commit cascade")
    await owner.close()


async def test_response_of_rolled_back_request_is_not_stored(
    api, tenant, runtime, no_commit: asyncpg.Connection
) -> None:
    first = await api.post("/api/v1/traces", json=trace(), headers=KEY)
    assert_problem(first, 500, "internal_error")
    rows = await count(runtime, tenant.id)
    assert rows["traces"] == 0
    await no_commit.execute("drop function refuse_commit cascade")
    second = await api.post("/api/v1/traces", json=trace(), headers=KEY)
    assert second.status_code == 201
    assert "idempotency-replayed" not in second.headers
    assert (await count(runtime, tenant.id))["traces"] == 1


async def test_response_is_stored_in_transaction_of_request(api, tenant, runtime) -> None:
    await api.post("/api/v1/traces", json=trace(), headers=KEY)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        work = await session.scalar(text("select xmin::text from traces"))
        kept = await session.scalar(text("select xmin::text from idempotency_keys"))
    assert work == kept


async def forget_answer(runtime, tenant) -> None:
    """As a process leaves it that died after its work and before its answer was kept."""
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            text(
                "update idempotency_keys set response_status = null, response_body = null,"
                " response_headers = null, lease_until = now() - interval '1 s'"
            )
        )


async def test_lost_response_of_reflection_is_rebuilt_from_run(api, tenant, runtime) -> None:
    first = await api.post("/api/v1/reflections/generate", json=trace(), headers=KEY)
    before = await count(runtime, tenant.id)
    await forget_answer(runtime, tenant)
    second = await api.post("/api/v1/reflections/generate", json=trace(), headers=KEY)
    assert "idempotency-replayed" not in second.headers
    assert second.json() == first.json() | {"duplicate": True}
    assert await count(runtime, tenant.id) == before


async def test_lines_with_lost_response_are_duplicates(api, tenant, runtime) -> None:
    raw = ndjson([trace(), trace(external_id="named"), trace()])
    first = await api.post("/api/v1/traces", content=raw, headers=NDJSON | KEY)
    before = await count(runtime, tenant.id)
    await forget_answer(runtime, tenant)
    second = await api.post("/api/v1/traces", content=raw, headers=NDJSON | KEY)
    assert second.json()["duplicate_count"] == 3
    assert [i["trace_id"] for i in second.json()["items"]] == [
        i["trace_id"] for i in first.json()["items"]
    ]
    assert [i["run_id"] for i in second.json()["items"]] == [
        i["run_id"] for i in first.json()["items"]
    ]
    assert await count(runtime, tenant.id) == before


async def test_request_with_other_key_is_stored(api, tenant, runtime) -> None:
    for key in ("one", "two"):
        headers = NDJSON | {"Idempotency-Key": key}
        await api.post("/api/v1/traces", content=ndjson([trace()] * 2), headers=headers)
    assert (await count(runtime, tenant.id))["traces"] == 4


async def test_repetition_after_failure_behind_a_commit_is_the_same_trace(
    api, tenant, runtime, monkeypatch
) -> None:
    """The trace and its run are committed; then the request fails. The client repeats it."""

    async def fail(*_: object, **__: object) -> None:
        raise NoFreeConnection

    with monkeypatch.context() as patched:
        patched.setattr(idempotency, "store_response", fail)
        first = await api.post("/api/v1/reflections/generate", json=trace(), headers=KEY)
    assert first.status_code == 503
    before = await count(runtime, tenant.id)
    assert (before["traces"], before["idempotency_keys"]) == (1, 1)
    second = await api.post("/api/v1/reflections/generate", json=trace(), headers=KEY)
    assert (second.status_code, second.json()["duplicate"]) == (200, True)
    after = await count(runtime, tenant.id)
    assert (after["traces"], after["runs"]) == (1, before["runs"])


async def test_ids_in_a_response_are_stored_once(api, tenant, runtime) -> None:
    answer = await api.post("/api/v1/traces", json=trace(), headers=KEY)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        found = await session.scalars(text("select mentioned_id::text from response_mentions"))
        assert set(found) >= {answer.json()["trace_id"]}
        await session.execute(text("delete from idempotency_keys"))
        assert await session.scalar(text("select count(*) from response_mentions")) == 0
