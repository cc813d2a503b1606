"""Answers to many lines: kept in a file, and true when the database goes away in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from memory_api.traces import batch_intake
from tests.support.api_calls import count, event, ndjson, send_lines, trace
from tests.support.problems import assert_problem

Fail = Callable[[str], Awaitable[None]]


@pytest.fixture
async def fail_with(database) -> AsyncIterator[Fail]:
    """Lets every event with the content "fail" meet a fault of the database."""
    owner = await asyncpg.connect(database.url("postgres"))

    async def fail(sqlstate: str) -> None:
        await owner.execute(
            "create function fail() returns trigger language plpgsql as $$ begin"
            f" if new.content = 'fail' then raise exception 'now' using errcode = '{sqlstate}';"
            " end if; return new; end $$"
        )
        await owner.execute(
            "create trigger fail before insert on trace_events for each row execute function fail()"
        )

    yield fail
    await owner.execute("drop function if exists fail cascade")
    await owner.close()


async def test_spooled_answers_are_complete(
    api, tenant, runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_intake, "MAX_RESPONSE_BYTES_IN_MEMORY", 100)
    monkeypatch.setattr(batch_intake, "RESPONSE_CHUNK_BYTES", 77)
    answer = await send_lines(api, ndjson([trace()] * 150) + b"no trace\n")
    told = answer.json()
    assert [item["line"] for item in told["items"]] == list(range(1, 152))
    assert (told["stored_count"], told["duplicate_count"], told["rejected_count"]) == (150, 0, 1)
    assert (await count(runtime, tenant.id))["traces"] == 150


async def test_database_loss_reports_stored_lines(api, tenant, runtime, fail_with: Fail) -> None:
    await fail_with("57P01")
    lines = [trace()] * 300 + [trace(events=[event("fail")])] + [trace()] * 250
    told = (await send_lines(api, ndjson(lines))).json()
    assert (told["stored_count"], told["rejected_count"]) == (250, 301)
    assert {item["error"]["code"] for item in told["items"][250:]} == {"unavailable"}
    assert told["items"][250]["error"]["retry_after"] >= 1
    assert (await count(runtime, tenant.id))["traces"] == 250


async def test_database_loss_before_first_batch_is_503(
    api, tenant, runtime, fail_with: Fail
) -> None:
    await fail_with("57P01")
    answer = await send_lines(api, ndjson([trace(), trace(events=[event("fail")])]))
    assert_problem(answer, 503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert (await count(runtime, tenant.id))["traces"] == 0


async def test_deadlock_refuses_only_its_line(api, tenant, runtime, fail_with: Fail) -> None:
    await fail_with("40P01")
    told = (await send_lines(api, ndjson([trace(), trace(events=[event("fail")]), trace()]))).json()
    codes = [item.get("error", {}).get("code") for item in told["items"]]
    assert codes == [None, "unavailable", None]
    assert (await count(runtime, tenant.id))["traces"] == 2
