"""Open traces over HTTP: events as they happen, an outcome that comes late, the end."""

from __future__ import annotations

import json
from asyncio import gather

import pytest
from httpx2 import AsyncClient

from tests.support.api_calls import count, event, new_trace
from tests.support.problems import assert_names, assert_problem


async def opened(api: AsyncClient, **more: object) -> str:
    return await new_trace(api, state="open", outcome=None, events=[], **more)


async def post(api: AsyncClient, trace_id: str, what: str, body: object):
    return await api.post(f"/api/v1/traces/{trace_id}/{what}", json=body)


async def test_events_are_appended_to_open_trace(api: AsyncClient) -> None:
    trace_id = await opened(api)
    for n in range(3):
        answer = await post(api, trace_id, "events", {"events": [event(f"{n}a"), event(f"{n}b")]})
        assert answer.status_code == 200
        assert answer.json()["event_count"] == 2 * n + 2
        assert answer.json()["state"] == "open"
    ended = await post(api, trace_id, "close", {"outcome": "failure", "error": "It broke"})
    assert ended.status_code == 200
    assert ended.json()["run_id"]
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert [e["content"] for e in back["events"]] == ["0a", "0b", "1a", "1b", "2a", "2b"]
    assert [e["seq"] for e in back["events"]] == list(range(6))
    assert (back["state"], back["outcome"]) == ("closed", "failure")
    assert back["error"]["error_message"] == "It broke"
    assert back["closed_at"]


async def test_open_trace_is_not_reflected_on(api: AsyncClient) -> None:
    trace_id = await new_trace(api, reflect="always", state="open")
    assert (await api.get(f"/api/v1/runs?trace_id={trace_id}")).json()["items"] == []
    told = await post(api, trace_id, "outcome", {"outcome": "failure", "reflect": "always"})
    assert told.json()["run_id"] is None
    ended = await post(api, trace_id, "close", {})
    assert ended.json()["run_id"]


async def test_closed_trace_refuses_events(api: AsyncClient, tenant, runtime) -> None:
    trace_id = await new_trace(api)
    before = await count(runtime, tenant.id)
    answer = await post(api, trace_id, "events", {"events": [event()]})
    assert_problem(answer, 409, "conflict")
    assert_problem(await post(api, trace_id, "close", {}), 409, "conflict")
    assert await count(runtime, tenant.id) == before


async def test_closing_twice_queues_one_run(api: AsyncClient, tenant, runtime) -> None:
    trace_id = await new_trace(api, state="open")
    answers = await gather(*(post(api, trace_id, "close", {}) for _ in range(5)))
    assert sorted(a.status_code for a in answers) == [200, 409, 409, 409, 409]
    assert (await count(runtime, tenant.id))["runs"] == 1


async def test_trace_without_events_cannot_be_closed(api: AsyncClient) -> None:
    trace_id = await opened(api)
    assert_names(await post(api, trace_id, "close", {"outcome": "success"}), "events")
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert (back["state"], back["outcome"]) == ("open", None)


async def test_late_outcome_starts_the_reflection(api: AsyncClient) -> None:
    trace_id = await new_trace(api, reflect="auto", outcome=None)
    told = await post(api, trace_id, "outcome", {"outcome": "failure"})
    assert told.status_code == 200
    assert told.json()["run_id"]
    again = await post(api, trace_id, "outcome", {"outcome": "failure"})
    assert again.json() == told.json() | {"duplicate": True}
    other = await post(api, trace_id, "outcome", {"outcome": "success"})
    assert_names(other, "outcome", 409)


@pytest.mark.parametrize("evidence", [{"ground_truth": "42"}, {"test_report": "1 failed"}])
async def test_evidence_starts_the_learning_without_an_outcome(
    api: AsyncClient, evidence: dict[str, str]
) -> None:
    answer = await api.post("/api/v1/traces", json={"events": [event()], **evidence})
    assert answer.json()["run_id"]
    lines = "".join(
        json.dumps({"events": [event()], "metadata": {"n": n}} | evidence) + "\n" for n in (1, 2)
    )
    batch = await api.post(
        "/api/v1/traces", content=lines, headers={"Content-Type": "application/x-ndjson"}
    )
    assert all(item["run_id"] for item in batch.json()["items"])


async def test_evidence_after_outcome_is_evaluated_again(api: AsyncClient) -> None:
    trace_id = await new_trace(api, outcome="failure")
    body = {"outcome": "failure", "ground_truth": {"a": 1}, "test_report": "2 failed"}
    told = await post(api, trace_id, "outcome", body)
    assert told.json()["duplicate"] is False
    assert told.json()["run_id"]
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert (back["ground_truth"], back["test_report"]) == ({"a": 1}, "2 failed")
    assert (await post(api, trace_id, "outcome", body)).json()["duplicate"] is True


async def test_match_of_a_late_outcome(api: AsyncClient) -> None:
    trace_id = await new_trace(api, outcome=None, ground_truth="Paris")
    wrong = await post(api, trace_id, "outcome", {"outcome": "success", "match": "number"})
    assert_names(wrong, "match")
    assert "'number'" in wrong.text
    assert "'Paris'" in wrong.text
    told = await post(api, trace_id, "outcome", {"outcome": "success", "match": "exact"})
    assert told.status_code == 200, told.text
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["ground_truth"] == {"answer": "Paris", "match": "exact"}
    other = {"outcome": "success", "ground_truth": 42, "match": "number"}
    assert (await post(api, trace_id, "outcome", other)).status_code == 200
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert back["ground_truth"] == {"answer": 42, "match": "number"}


async def test_reported_outcome_is_kept_on_close(api: AsyncClient) -> None:
    trace_id = await new_trace(api, state="open", outcome=None)
    await post(api, trace_id, "outcome", {"outcome": "failure"})
    assert_names(await post(api, trace_id, "close", {"outcome": "success"}), "outcome", 409)
    assert (await post(api, trace_id, "close", {"outcome": "failure"})).status_code == 200


async def test_reflect_never_is_respected_on_close(api: AsyncClient) -> None:
    trace_id = await new_trace(api, state="open")
    ended = await post(api, trace_id, "close", {"reflect": "never"})
    assert ended.json()["run_id"] is None


@pytest.mark.parametrize(
    ("what", "body", "field"),
    [
        ("events", {"events": []}, "events"),
        ("events", {}, "events"),
        ("events", {"events": [{"event_type": "x"}]}, "events.0.event_type"),
        ("events", {"events": [event()], "more": 1}, "more"),
        ("outcome", {}, "outcome"),
        ("outcome", {"outcome": "won"}, "outcome"),
        ("outcome", {"outcome": "success", "reflect": "maybe"}, "reflect"),
        ("close", {"outcome": "won"}, "outcome"),
        ("close", {"error": 7}, "error"),
    ],
)
async def test_invalid_field_is_reported(api: AsyncClient, what: str, body, field: str) -> None:
    trace_id = await new_trace(api, state="open")
    answer = await post(api, trace_id, what, body)
    named = [error["field"] for error in assert_problem(answer, 422)["errors"]]
    assert any(name == field or name.startswith(field + ".") for name in named), named
    back = (await api.get(f"/api/v1/traces/{trace_id}")).json()
    assert (back["event_count"], back["state"]) == (2, "open")


async def test_event_limit_counts_all_batches(api: AsyncClient) -> None:
    trace_id = await new_trace(api, state="open", events=[event("x")] * 19_999)
    assert (await post(api, trace_id, "events", {"events": [event()]})).status_code == 200
    assert_names(await post(api, trace_id, "events", {"events": [event()]}), "events")


async def test_concurrent_event_batches_keep_their_order(api: AsyncClient) -> None:
    trace_id = await opened(api)
    parts = [[event(f"{part}-{n}") for n in range(5)] for part in range(8)]
    answers = await gather(*(post(api, trace_id, "events", {"events": p}) for p in parts))
    assert {a.status_code for a in answers} == {200}
    events = (await api.get(f"/api/v1/traces/{trace_id}")).json()["events"]
    assert [e["seq"] for e in events] == list(range(40))
    for part in range(8):
        told = [e["content"] for e in events if e["content"].startswith(f"{part}-")]
        assert told == [f"{part}-{n}" for n in range(5)]
