"""NDJSON: good lines are stored whatever stands between them, in transactions of 250."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
import pytest
from httpx2 import AsyncClient
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from memory_api.run_queue.admission import AdmissionControl
from memory_api.traces.ndjson import MAX_LINE_BYTES, read_batches
from tests.support.api_calls import (
    NDJSON,
    count,
    event,
    list_events,
    ndjson,
    new_key,
    send_lines,
    trace,
)
from tests.support.problems import assert_problem


async def test_every_line_gets_result_in_order(api, tenant, runtime) -> None:
    good = [trace(external_id=f"n-{n}") for n in range(4)]
    other_tenant = trace(tenant_id=str(uuid4()))
    lines = [
        json.dumps(good[0]).encode(),
        b"",
        b"{",
        json.dumps(good[1]).encode() + b"\r",
        b"   \t",
        b'"text"',
        b"[]",
        json.dumps(trace(events=[])).encode(),
        json.dumps(trace(events=[event(event_type="x")])).encode(),
        json.dumps(good[0]).encode(),
        json.dumps(good[1] | {"outcome": "error"}).encode(),
        b'{"events": [{"event_type": "tool_call", "metadata": {"n": NaN}}]}',
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps(other_tenant).encode(),
        json.dumps(good[2]).encode().replace(b"plan.txt", b"\\u0000.txt"),
        b" " + json.dumps(good[3]).encode() + b" ",
    ]
    answer = await send_lines(api, b"\n".join(lines))
    assert answer.status_code == 200
    body = answer.json()
    assert (body["stored_count"], body["duplicate_count"], body["rejected_count"]) == (4, 1, 10)
    items = {item["line"]: item for item in body["items"]}
    assert sorted(items) == [1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
    assert items[10] == items[1] | {"line": 10, "duplicate": True}
    assert items[16]["sanitized"] is True
    refused = {n: item["error"]["code"] for n, item in items.items() if "error" in item}
    assert refused == {
        3: "malformed_json", 6: "invalid", 7: "invalid", 8: "invalid", 9: "invalid",
        11: "conflict", 12: "invalid", 13: "invalid", 14: "malformed_json", 15: "forbidden",
    }  # fmt: skip
    fields = {n: items[n]["error"].get("field") for n in (6, 7, 8, 9, 11, 12, 15)}
    assert fields == {
        6: "body", 7: "body", 8: "events", 9: "events.0.event_type", 11: "external_id",
        12: "events.0.metadata.n", 15: "tenant_id",
    }  # fmt: skip
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"]) == (4, 8)
    listed = (await api.get("/api/v1/traces")).json()["items"]
    assert sorted(item["external_id"] for item in listed) == ["n-0", "n-1", "n-2", "n-3"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n \n"])
@pytest.mark.parametrize("last", [True, False])
async def test_line_endings(api: AsyncClient, end: str, last: bool) -> None:
    raw = ndjson((trace(external_id=str(n)) for n in range(3)), end)
    answer = await send_lines(api, raw if last else raw.removesuffix(end.encode()))
    assert answer.json()["stored_count"] == 3


@pytest.mark.parametrize(
    "kind",
    ["application/x-ndjson", "application/jsonl", "Application/X-NDJSON; charset=utf-8"],
)
async def test_every_ndjson_content_type_is_accepted(api: AsyncClient, kind: str) -> None:
    answer = await api.post(
        "/api/v1/traces", content=ndjson([trace()]), headers={"Content-Type": kind}
    )
    assert answer.json()["stored_count"] == 1


async def test_empty_body_gives_no_results(api: AsyncClient) -> None:
    for raw in (b"", b"\n\n", b"  "):
        answer = await send_lines(api, raw)
        assert answer.json() == {
            "items": [],
            "stored_count": 0,
            "duplicate_count": 0,
            "rejected_count": 0,
        }


async def test_transaction_contains_250_lines(api, tenant, runtime) -> None:
    """now() is the start of a transaction, so its values count the transactions."""
    answer = await send_lines(api, ndjson([trace()] * 600), "?reflect=always")
    assert answer.json()["stored_count"] == 600
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.execute(text("select count(*) from runs group by created_at"))
        assert sorted(rows.scalars()) == [100, 250, 250]


async def test_too_long_line_does_not_affect_others(api, tenant, runtime) -> None:
    frame = len(json.dumps(trace(task_goal="")))
    fits = json.dumps(trace(external_id="fits", task_goal="")).encode()
    fits = fits[:-2] + b'"' + b" " * (MAX_LINE_BYTES - len(fits) - 1 + 1) + b"}"
    long = json.dumps(trace(task_goal="x" * (MAX_LINE_BYTES + 1 - frame))).encode()
    assert (len(fits), len(long)) == (MAX_LINE_BYTES, MAX_LINE_BYTES + 1)
    raw = b"\n".join([ndjson([trace(external_id="a")]).strip(), fits, long, ndjson([trace()])])
    answer = await send_lines(api, raw)
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert [item["line"] for item in items] == [1, 2, 3, 4]
    assert items[2]["error"]["code"] == "too_large"
    assert (await count(runtime, tenant.id))["traces"] == 3


async def test_ndjson_body_may_exceed_json_limit(api: AsyncClient) -> None:
    """Forty megabytes of lines: the limit is that of a line."""
    line = ndjson([trace(task_goal="x" * 4_000_000)])
    answer = await send_lines(api, line * 10)
    assert answer.json()["stored_count"] == 10


async def test_line_with_ten_thousand_events(api: AsyncClient) -> None:
    events = [event(f"step {n}") for n in range(10_001)]
    answer = await send_lines(api, ndjson([trace(events=events)]))
    trace_id = answer.json()["items"][0]["trace_id"]
    stored = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert stored["event_count"] == 10_001
    listed = await list_events(api, trace_id)
    for n in (0, 9_999, 10_000):
        entry = listed[n]
        assert (entry["seq"], entry["event_id"], entry["content"]) == (n, f"e{n:04d}", f"step {n}")


async def test_repeated_file_adds_nothing(api, tenant, runtime) -> None:
    raw = ndjson(trace(external_id=f"f-{n}") for n in range(120))
    first = (await send_lines(api, raw, "")).json()
    before = await count(runtime, tenant.id)
    second = (await send_lines(api, raw, "")).json()
    assert (second["stored_count"], second["duplicate_count"]) == (0, 120)
    assert [i["trace_id"] for i in second["items"]] == [i["trace_id"] for i in first["items"]]
    assert [i["run_id"] for i in second["items"]] == [i["run_id"] for i in first["items"]]
    assert await count(runtime, tenant.id) == before


async def test_duplicates_are_accepted_when_queue_is_full(api, runtime, monkeypatch) -> None:
    known = [trace(external_id=f"k-{n}") for n in range(3)]
    await send_lines(api, ndjson(known), "")
    monkeypatch.setattr(runtime.queue, "admission", AdmissionControl(4, 10**9))
    raw = ndjson([*known, trace(external_id="new"), trace(external_id="too many")])
    told = (await send_lines(api, raw, "")).json()
    assert (told["stored_count"], told["duplicate_count"], told["rejected_count"]) == (1, 3, 1)
    assert told["items"][4]["error"]["code"] == "queue_full"


@pytest.fixture
async def poison(database) -> AsyncIterator[str]:
    """The task goal of a trace whose events the database itself refuses."""
    owner = await asyncpg.connect(database.url("postgres"))
    await owner.execute(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.content = 'poison' then raise exception 'no'; end if; return new; end $$"
    )
    await owner.execute(
        "create trigger refuse before insert on trace_events for each row execute function refuse()"
    )
    yield "poison"
    await owner.execute("drop function refuse cascade")
    await owner.close()


async def test_line_refused_by_database_does_not_affect_others(
    api, tenant, runtime, poison: str
) -> None:
    bad = trace(external_id="bad", events=[event("fine"), event(poison)])
    raw = ndjson([trace(external_id="a"), bad, trace(external_id="b"), bad])
    answer = await send_lines(api, raw, "?reflect=always")
    assert answer.status_code == 200
    items = answer.json()["items"]
    assert [item.get("error", {}).get("code") for item in items] == [
        None, "internal_error", None, "internal_error",
    ]  # fmt: skip
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"], rows["runs"]) == (2, 4, 2)
    whole = await api.post("/api/v1/traces", json=bad)
    assert_problem(whole, 500, "internal_error")
    assert (await count(runtime, tenant.id)) == rows


async def test_key_of_a_project_is_refused_line_by_line(api: AsyncClient) -> None:
    bound = NDJSON | await new_key(api, "write", project_id="mine")
    raw = ndjson([trace(), trace(project_id="other"), trace(project_id="mine")])
    answer = await api.post("/api/v1/traces", content=raw, headers=bound)
    assert [("error" in item) for item in answer.json()["items"]] == [False, True, False]


async def test_ndjson_with_idempotency_key_has_one_effect(api, tenant, runtime) -> None:
    raw = ndjson([trace(), trace()])
    headers = NDJSON | {"Idempotency-Key": "file-1"}
    first = await api.post("/api/v1/traces", content=raw, headers=headers)
    second = await api.post("/api/v1/traces", content=raw, headers=headers)
    assert second.json() == first.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert (await count(runtime, tenant.id))["traces"] == 2
    other = await api.post("/api/v1/traces", content=raw + raw, headers=headers)
    assert_problem(other, 422, "idempotency_key_reused")
    large = await api.post("/api/v1/traces", content=raw + b" " * (33 << 20), headers=headers)
    assert_problem(large, 413, "too_large")


async def test_field_named_like_request_part_is_reported(api: AsyncClient) -> None:
    answer = await send_lines(api, ndjson([trace(query=5)]))
    assert answer.json()["items"][0]["error"]["field"] == "query"


async def test_bad_query_is_refused_before_a_line_is_read(api, tenant, runtime) -> None:
    answer = await send_lines(api, ndjson([trace()]), "?reflect=maybe")
    assert_problem(answer, 422, "invalid")
    assert (await count(runtime, tenant.id))["traces"] == 0


@given(
    st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=12)),
    st.lists(st.integers(1, 7), min_size=1),
    st.booleans(),
)
@settings(max_examples=100)
async def test_chunk_boundaries_do_not_matter(texts, sizes, last: bool) -> None:
    """The same lines under the same numbers, whatever chunks the network made of them."""
    raw = "\n".join(texts).encode() + (b"\n" if last else b"")

    async def chunks() -> AsyncIterator[bytes]:
        at = turn = 0
        while at < len(raw):
            size = sizes[turn % len(sizes)]
            yield raw[at : at + size]
            at, turn = at + size, turn + 1

    found = [line async for batch in read_batches(chunks()) for line in batch]
    lines = raw.split(b"\n")
    assert found == [(n, line) for n, line in enumerate(lines, start=1) if line.strip()]


async def test_line_with_unknown_related_memory_is_rejected(api: AsyncClient) -> None:
    made = await api.post("/api/v1/memories", json={"content": "known before"})
    known, unknown = made.json()["id"], str(uuid4())
    lines = [
        trace(external_id="plain"),
        trace(external_id="known", related_memory_ids=[known]),
        trace(external_id="unknown", related_memory_ids=[known, unknown]),
    ]
    first, second, third = (await send_lines(api, ndjson(lines))).json()["items"]
    assert "trace_id" in first
    assert "trace_id" in second
    assert (third["error"]["code"], third["error"]["field"]) == ("invalid", "related_memory_ids")
    assert unknown in third["error"]["detail"]
    await api.delete(f"/api/v1/memories/{known}")
    again = (await send_lines(api, ndjson(lines[1:2]))).json()["items"]
    assert again[0]["duplicate"], "a trace that is stored is not checked again"
