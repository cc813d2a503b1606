"""Traces over HTTP: one at a time, read back, listed, duplicates."""

from __future__ import annotations

import json
from asyncio import gather
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx2 import AsyncClient

from bench.data import to_trace
from tests.support.api_calls import count, event, list_events, new_key, new_trace, trace
from tests.support.cases import each_case
from tests.support.problems import assert_names, assert_problem, without_instance

ODD = (
    "crlf\r\nkept\r",
    "  spaces \t and\u00a0others\u3000 ",
    "e\u0301 and \u00e9 are two spellings",
    "ﬁ ﬂ ½ Å \u212b 가 \u1100\u1161",
    "👩‍👩‍👧‍👦 \U0010ffff \u200b\ufeff\u202e",
    "\x01\x02\x1f\x7f\x80\x9f",
    "\ufffe\uffff\ufdd0",
    "'; drop table traces; -- %s {0} \\ \\u0000 $1 :x",
    "日本語 \u3099か\u3099が",
)


async def test_trace_is_stored_and_read_back(api: AsyncClient) -> None:
    sent = trace(
        external_id="run-1",
        task_key="plan",
        session_id="s-1",
        playbook="files",
        task_goal="Know the plan",
        error={"category": "tool_error", "message": "No such file", "context": {"errno": 2}},
        query="What is planned?",
        generated_answer="Nothing",
        reasoning_steps=["look", "give up"],
        ground_truth={"plan": ["rest"]},
        test_report="1 failed",
        used_bullet_keys=["files-00001"],
        retrieval_id=str(uuid4()),
        parent_id=str(uuid4()),
        language="en",
        metadata={"a": 1},
    )
    answer = await api.post("/api/v1/traces", json=sent)
    assert answer.status_code == 201
    body = answer.json()
    assert answer.headers["location"] == f"/api/v1/traces/{body['trace_id']}"
    assert body["duplicate"] is False
    assert body["sanitized"] is False
    assert UUID(body["run_id"])
    back = (await api.get(answer.headers["location"])).json()
    same = (
        "external_id task_key session_id playbook task_goal task_description query outcome"
        " generated_answer reasoning_steps ground_truth test_report used_bullet_keys language"
    )
    assert {name: back[name] for name in same.split()} == {
        name: sent[name] for name in same.split()
    }
    assert back["metadata"] == {"a": 1}
    assert back["error"] == {
        "error_category": "tool_error",
        "error_message": "No such file",
        "context": {"errno": 2},
    }
    assert back["state"] == "closed"
    assert back["event_count"] == 2
    assert [e["content"] for e in back["events"]] == ["cat plan.txt", "No such file"]
    assert [e["seq"] for e in back["events"]] == [0, 1]


@pytest.mark.parametrize("text", ODD)
async def test_text_is_stored_byte_for_byte(api: AsyncClient, text: str) -> None:
    kept = event(
        text,
        metadata={text: [text, {"k": text}]},
        error={"message": text, text: text},
        agent=text[:128],
    )
    trace_id = await new_trace(
        api, events=[kept], task_description=text, query=text, generated_answer=text,
        reasoning_steps=[text], ground_truth=text, test_report=text, error=text,
        external_id=text, metadata={text: text},
    )  # fmt: skip
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    for name in ("task_description", "query", "generated_answer", "ground_truth", "test_report"):
        assert back[name] == text
    assert back["external_id"] == text
    assert back["reasoning_steps"] == [text]
    assert back["metadata"] == {text: text}
    assert back["error"]["error_message"] == text
    for name in ("content", "metadata", "error", "agent"):
        assert back["events"][0][name] == kept[name]


async def test_documented_field_names_are_accepted(api: AsyncClient) -> None:
    sent = {
        "id": "x-1", "group": "g", "project": "p", "dataset": "d", "used_bullet_ids": ["b-00001"],
        "outcome": "error",
        "events": [{"event_type": "user_input", "error": "oops", "metadata": None}],
    }  # fmt: skip
    answer = await api.post("/api/v1/traces?reflect=never", json=sent)
    back = (await api.get(answer.headers["location"])).json()
    assert (back["external_id"], back["task_key"], back["project_id"]) == ("x-1", "g", "p")
    assert (back["playbook"], back["used_bullet_keys"]) == ("d", ["b-00001"])
    assert back["events"][0]["event_type"] == "user_message"
    assert back["events"][0]["error"] == {"message": "oops"}
    assert back["events"][0]["metadata"] == {}


@each_case(
    ("sent", "field", "message"),
    [
        ({"playbok": "support"}, "playbok", "Unknown field. Did you mean `playbook`?"),
        ({"colour": 1}, "colour", "Unknown field. Put your own data into `metadata`."),
        (
            {"events": [event(), event() | {"toolname": "x"}]},
            "events.1.toolname",
            "Unknown field. Did you mean `tool_name`?",
        ),
        ({"error": {"mesage": "x"}}, "error.mesage", "Unknown field. Did you mean `message`?"),
        ({"error": {"n": 2}}, "error.n", "Unknown field. Put your own data into `context`."),
        (
            {"external_id": "mine", "id": "theirs"},
            "id",
            "The body has this field twice, under two names. Send one of them.",
        ),
    ],
)
async def test_unknown_field_is_refused_with_the_nearest_name(
    api: AsyncClient, sent: dict[str, Any], field: str, message: str
) -> None:
    body = {"events": [event()]} | sent
    answer = await api.post("/api/v1/traces", json=body)
    assert_names(answer, field)
    assert answer.json()["errors"][0]["message"] == message
    line = {"Content-Type": "application/x-ndjson"}
    batch = (await api.post("/api/v1/traces", content=json.dumps(body), headers=line)).json()
    assert batch["items"][0]["error"] == {"code": "invalid", "field": field, "detail": message}
    assert batch["stored_count"] == 0


async def test_lines_of_the_real_traces_are_accepted(api, shared: Path) -> None:
    lines = (shared / "data/traces.jsonl").read_bytes().splitlines()
    for raw in lines[:: max(1, len(lines) // 25)]:
        answer = await api.post("/api/v1/traces?reflect=never", json=to_trace(json.loads(raw)))
        assert answer.status_code == 201, answer.text
        back = (await api.get(answer.headers["location"])).json()
        assert back["external_id"] == json.loads(raw)["id"]
        assert back["event_count"] == len(json.loads(raw)["events"])


async def test_repeated_trace_is_duplicate(api: AsyncClient, tenant, runtime) -> None:
    body = trace(external_id="again")
    first = await api.post("/api/v1/traces", json=body)
    before = await count(runtime, tenant.id)
    second = await api.post("/api/v1/traces", json=dict(reversed(body.items())))
    assert second.status_code == 200
    assert second.json() == first.json() | {"duplicate": True}
    assert second.headers["location"] == first.headers["location"]
    assert await count(runtime, tenant.id) == before


async def test_other_content_with_same_external_id_is_409(api, tenant, runtime) -> None:
    await new_trace(api, external_id="taken")
    before = await count(runtime, tenant.id)
    answer = await api.post("/api/v1/traces", json=trace(external_id="taken", outcome="error"))
    assert_names(answer, "external_id", 409)
    assert await count(runtime, tenant.id) == before


async def test_same_external_id_in_other_project_is_new_trace(api: AsyncClient) -> None:
    first = await new_trace(api, external_id="shared", project_id="a")
    second = await new_trace(api, external_id="shared", project_id="b", outcome="error")
    assert first != second


async def test_trace_without_external_id_is_new(api: AsyncClient) -> None:
    assert await new_trace(api) != await new_trace(api)


@pytest.mark.parametrize(
    ("reflect", "outcome", "queued"),
    [
        ("auto", "failure", True),
        ("auto", "partial", True),
        ("auto", "success", True),
        ("auto", None, False),
        ("always", None, True),
        ("always", "success", True),
        ("never", "failure", False),
    ],
)
async def test_reflect_parameter_decides_whether_run_is_queued(
    api, reflect: str, outcome, queued
) -> None:
    answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=trace(outcome=outcome))
    assert answer.status_code == 201
    assert (answer.json()["run_id"] is not None) == queued
    runs = (await api.get(f"/api/v1/runs?trace_id={answer.json()['trace_id']}")).json()["items"]
    assert [run["state"] for run in runs] == (["queued"] if queued else [])


async def test_queued_run_is_done_by_worker(api, tenant, drain) -> None:
    answer = await api.post("/api/v1/traces", json=trace())
    assert await drain(tenant.id) == 2
    first = (await api.get(f"/api/v1/runs/{answer.json()['run_id']}")).json()
    assert (first["kind"], first["state"]) == ("evaluate", "done"), first
    run = (await api.get(f"/api/v1/runs/{first['next_run_id']}")).json()
    assert (run["kind"], run["state"]) == ("reflect", "done"), run
    assert run["result"]["trace_id"] == answer.json()["trace_id"]
    kinds = [m["kind"] for m in (await api.get("/api/v1/memories")).json()["items"]]
    assert "reflection" in kinds
    assert "episode" in kinds


BAD = [
    ({"events": []}, "events"),
    ({}, "events"),
    ({"events": None}, "events"),
    ({"events": {}}, "events"),
    ({"events": ["x"]}, "events.0"),
    ({"events": [event(), event(event_type="tool")]}, "events.1.event_type"),
    ({"events": [{"content": "x"}]}, "events.0.event_type"),
    ({"events": [event(event_type=None)]}, "events.0.event_type"),
    ({"events": [event(event_type=["tool_call"])]}, "events.0.event_type"),
    ({"events": [event(event_type={"a": 1})]}, "events.0.event_type"),
    ({"events": [event(content=5)]}, "events.0.content"),
    ({"events": [event(content=["x"])]}, "events.0.content"),
    ({"events": [event(metadata=[])]}, "events.0.metadata"),
    ({"events": [event(metadata="x", other=1)]}, "events.0.metadata"),
    ({"events": [event(error=[1])]}, "events.0.error"),
    ({"events": [event(timestamp="yesterday")]}, "events.0.timestamp"),
    ({"events": [event(timestamp="0001-01-01T00:00:00+14:00")]}, "events.0.timestamp"),
    ({"events": [event(timestamp="9999-12-31T23:59:59-14:00")]}, "events.0.timestamp"),
    ({"events": [event(timestamp=10**30)]}, "events.0.timestamp"),
    ({"events": [event(timestamp="2026-02-30T00:00:00Z")]}, "events.0.timestamp"),
    ({"events": [event(tool_name="x" * 129)]}, "events.0.tool_name"),
    ({"events": [event(event_id="")]}, "events.0.event_id"),
    ({"events": [event()], "external_id": "x" * 129}, "external_id"),
    ({"events": [event()], "external_id": ""}, "external_id"),
    ({"events": [event()], "external_id": 17}, "external_id"),
    ({"events": [event()], "project_id": "x" * 129}, "project_id"),
    ({"events": [event()], "session_id": "x" * 129}, "session_id"),
    ({"events": [event()], "outcome": "won"}, "outcome"),
    ({"events": [event()], "outcome": True}, "outcome"),
    ({"events": [event()], "state": "half"}, "state"),
    ({"events": [event()], "error": 5}, "error"),
    ({"events": [event()], "error": {"category": "weird"}}, "error.category"),
    ({"events": [event()], "error": {"message": 5}}, "error.message"),
    ({"events": [event()], "error": {"context": [1, 2]}}, "error.context"),
    ({"events": [event()], "error": {"context": "ab", "more": 1}}, "error.context"),
    ({"events": [event()], "parent_id": "nobody"}, "parent_id"),
    ({"events": [event()], "retrieval_id": 5}, "retrieval_id"),
    ({"events": [event()], "related_memory_ids": ["x"]}, "related_memory_ids.0"),
    ({"events": [event()], "related_memory_ids": [str(UUID(int=1))] * 1001}, "related_memory_ids"),
    ({"events": [event()], "used_bullet_keys": ["x"] * 1001}, "used_bullet_keys"),
    ({"events": [event()], "used_bullet_keys": "x"}, "used_bullet_keys"),
    ({"events": [event()], "reasoning_steps": [1]}, "reasoning_steps.0"),
    ({"events": [event()], "metadata": "x", "more": 1}, "metadata"),
    ({"events": [event()], "task_description": {"a": 1}}, "task_description"),
    ({"events": [event()], "tenant_id": 5}, "tenant_id"),
    ({"events": [event()], "query": 5}, "query"),
    ({"events": [event(metadata={"body": 1}, agent={"path": 1})]}, "events.0.agent"),
]


@pytest.mark.parametrize(("body", "field"), BAD, ids=[f"{n}-{f}" for n, (_, f) in enumerate(BAD)])
async def test_invalid_field_is_reported(api, tenant, runtime, body, field: str) -> None:
    answer = await api.post("/api/v1/traces", json=body)
    named = [error["field"] for error in assert_problem(answer, 422, "invalid")["errors"]]
    assert any(name == field or name.startswith(field + ".") for name in named), named
    rows = await count(runtime, tenant.id)
    assert rows["traces"] == rows["trace_events"] == rows["runs"] == 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2999-01-01T00:00:00Z", "2999-01-01T00:00:00Z"),
        ("2026-05-01T12:00:00", "2026-05-01T12:00:00Z"),
        ("2026-05-01T12:00:00+09:00", "2026-05-01T03:00:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
        (0, "1970-01-01T00:00:00Z"),
        (1_700_000_000.5, "2023-11-14T22:13:20.500000Z"),
    ],
)
async def test_times_are_stored_in_utc(api: AsyncClient, given, kept: str) -> None:
    trace_id = await new_trace(api, events=[event(timestamp=given)])
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["events"][0]["timestamp"] == kept


async def test_event_of_five_megabytes(api: AsyncClient) -> None:
    big = "日本 text\r\n" * 400_000
    trace_id = await new_trace(api, events=[event(big)])
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["events"][0]["content"] == big


async def test_event_limit_is_twenty_thousand(api, tenant, runtime) -> None:
    answer = await api.post("/api/v1/traces", json=trace(events=[event("x")] * 20_001))
    assert_names(answer, "events")
    assert (await count(runtime, tenant.id))["trace_events"] == 0
    trace_id = await new_trace(api, events=[event(str(n)) for n in range(20_000)])
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["event_count"] == 20_000
    assert len(back["events"]) == 200
    listed = await list_events(api, trace_id)
    assert [e["content"] for e in listed] == [str(n) for n in range(20_000)]


async def test_unknown_trace_is_404(api: AsyncClient) -> None:
    nobody = uuid4()
    for method, path, body in (
        ("GET", "", None),
        ("POST", "/events", {"events": [event()]}),
        ("POST", "/outcome", {"outcome": "success"}),
        ("POST", "/close", {}),
    ):
        answer = await api.request(method, f"/api/v1/traces/{nobody}{path}", json=body)
        assert_problem(answer, 404, "not_found")
        answer = await api.request(method, f"/api/v1/traces/17{path}", json=body)
        assert_names(answer, "trace_id")


async def test_lists_are_filtered(api: AsyncClient) -> None:
    failed = await new_trace(api, task_key="a")
    won = await new_trace(api, task_key="b", outcome="success")
    left = await new_trace(api, task_key="a", outcome=None, state="open")
    elsewhere = await new_trace(api, project_id="other")

    async def ids(query: str) -> list[str]:
        answer = await api.get(f"/api/v1/traces{query}")
        assert answer.status_code == 200
        return [item["id"] for item in answer.json()["items"]]

    assert await ids("") == [left, won, failed]
    assert await ids("?outcome=success") == [won]
    assert await ids("?state=open") == [left]
    assert await ids("?task_key=a&state=closed") == [failed]
    assert await ids("?project_id=other") == [elsewhere]
    assert await ids("?project=other") == [elsewhere]
    assert await ids("?project_id=nobody") == []
    taught = await new_trace(api, playbook="pay")
    assert await ids("?playbook=pay") == [taught]
    assert await ids("?playbook=nope") == []
    named = await new_trace(api, external_id="sdk-1")
    assert await ids("?external_id=sdk-1") == [named]
    assert await ids("?external_id=sdk-1&project_id=other") == []
    for query, field in (
        ("?outcome=won", "outcome"),
        ("?state=x", "state"),
        ("?limit=0", "limit"),
        ("?limit=201", "limit"),
        ("?limit=x", "limit"),
        ("?project_id=" + "x" * 129, "project_id"),
    ):
        assert_names(await api.get(f"/api/v1/traces{query}"), field)


async def test_concurrent_requests_with_one_external_id_are_one_trace(api, tenant, runtime) -> None:
    body = trace(external_id="race")
    answers = await gather(*(api.post("/api/v1/traces", json=body) for _ in range(10)))
    assert sorted(a.status_code for a in answers) == [200] * 9 + [201]
    assert len({a.json()["trace_id"] for a in answers}) == 1
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["trace_events"], rows["runs"]) == (1, 2, 1)


async def test_key_of_project_sees_only_its_project(api: AsyncClient) -> None:
    mine = await new_trace(api, project_id="mine")
    other = await new_trace(api, project_id="other", external_id="secret-name")
    bound = await new_key(api, "write", project_id="mine")
    listed = (await api.get("/api/v1/traces", headers=bound)).json()["items"]
    assert [item["id"] for item in listed] == [mine]
    made = await api.post("/api/v1/traces", json=trace(external_id="secret-name"), headers=bound)
    assert made.status_code == 201
    back = (await api.get(made.headers["location"], headers=bound)).json()
    assert back["project_id"] == "mine"
    answer = await api.get("/api/v1/traces?project_id=other", headers=bound)
    assert_problem(answer, 403, "forbidden")
    answer = await api.post("/api/v1/traces", json=trace(project_id="other"), headers=bound)
    assert_problem(answer, 403, "forbidden")
    missing = await api.get(f"/api/v1/traces/{uuid4()}", headers=bound)
    hidden = await api.get(f"/api/v1/traces/{other}", headers=bound)
    assert hidden.status_code == 404
    assert without_instance(hidden) == without_instance(missing)
    for path, body in (("events", {"events": [event()]}), ("close", {})):
        answer = await api.post(f"/api/v1/traces/{other}/{path}", json=body, headers=bound)
        assert_problem(answer, 404, "not_found")
