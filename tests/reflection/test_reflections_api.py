"""Reflections over HTTP: generated, brought, asked for; async, lite, switched off."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from httpx2 import AsyncClient

from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.support.api_calls import count, event, new_memory, trace
from tests.support.live_service import with_runtime
from tests.support.problems import assert_names, assert_problem
from tests.support.tickets import waiting_tickets

Generate = "/api/v1/reflections/generate"
ASYNC = {"Prefer": "respond-async"}

Configured = Callable[..., Any]


@pytest.fixture
def configured(app: FastAPI, runtime: Runtime, tenant) -> Configured:
    """The API of a service with other settings, on the same database."""

    @asynccontextmanager
    async def start(**changes: Any) -> AsyncIterator[AsyncClient]:
        settings = runtime.settings.model_copy(update=changes)
        changed = with_runtime(app, replace(runtime, settings=settings))
        transport = httpx2.ASGITransport(app=changed, raise_app_exceptions=False)
        async with AsyncClient(
            transport=transport, base_url="http://h", headers=tenant.auth()
        ) as client:
            yield client

    return start


async def test_reflection_is_returned_and_stored(api: AsyncClient, tenant, runtime) -> None:
    answer = await api.post(Generate, json=trace(external_id="g-1", session_id="s"))
    assert answer.status_code == 200
    body = answer.json()
    assert body["result"] == "stored"
    assert (body["engine"], body["degraded"], body["duplicate"]) == ("rules", False, False)
    assert 0 <= body["importance"] <= 1
    assert 0 <= body["confidence"] <= 1
    assert 1 <= len(body["source_event_ids"]) <= 5
    kept = (await api.get(f"/api/v1/memories/{body['reflection_id']}")).json()
    assert kept["content"] == body["reflection_text"]
    assert kept["trace_id"] == body["trace_id"]
    run = (await api.get(f"/api/v1/runs/{body['run_id']}")).json()
    assert (run["state"], run["kind"]) == ("done", "reflect")
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["runs"]) == (1, 1)


async def test_repeated_request_returns_first_answer(api, tenant, runtime) -> None:
    first = await api.post(Generate, json=trace(external_id="g-1"))
    before = await count(runtime, tenant.id)
    again = await api.post(Generate, json=trace(external_id="g-1"))
    assert again.json() == first.json() | {"duplicate": True}
    assert await count(runtime, tenant.id) == before
    other = await api.post(Generate, json=trace(external_id="g-1", outcome="error"))
    assert_names(other, "external_id", 409)


async def test_stored_trace_can_be_reflected_on_later(api: AsyncClient) -> None:
    stored = await api.post("/api/v1/traces?reflect=never", json=trace(external_id="t"))
    answer = await api.post(Generate, json=trace(external_id="t"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["trace_id"] == stored.json()["trace_id"]
    assert answer.json()["reflection_id"]


async def test_repeated_lesson_is_counted_as_observation(api: AsyncClient) -> None:
    first = (await api.post(Generate, json=trace())).json()
    second = (await api.post(Generate, json=trace())).json()
    assert second["result"] == "already_known"
    assert second["reflection_id"] == first["reflection_id"]
    assert second["trace_id"] != first["trace_id"]
    memory = (await api.get(f"/api/v1/memories/{first['reflection_id']}")).json()
    assert memory["observation_count"] == 2


@pytest.mark.parametrize(
    "prefer", ["respond-async", "Respond-Async, wait=5", "wait=5,respond-async"]
)
async def test_respond_async_is_202_with_run(api, tenant, drain, prefer: str) -> None:
    answer = await api.post(Generate, json=trace(external_id="l"), headers={"Prefer": prefer})
    assert answer.status_code == 202
    body = answer.json()
    assert body["state"] == "queued"
    assert answer.headers["location"] == f"/api/v1/runs/{body['run_id']}"
    assert answer.headers["preference-applied"] == "respond-async"
    again = await api.post(Generate, json=trace(external_id="l"), headers={"Prefer": prefer})
    assert (again.status_code, again.json()["run_id"]) == (202, body["run_id"])
    assert await drain(tenant.id) == 1
    run = (await api.get(answer.headers["location"])).json()
    assert run["state"] == "done", run
    done = await api.post(Generate, json=trace(external_id="l"), headers={"Prefer": prefer})
    assert done.status_code == 200
    assert done.json() == run["result"] | {"duplicate": True}


async def test_nothing_found_stores_the_episode_for_later_attempts(api: AsyncClient) -> None:
    def attempt(replicas: int, outcome: str) -> dict[str, Any]:
        arguments = json.dumps({"deployment": "mail", "replicas": replicas})
        events = [
            {"event_type": "user_message", "content": "Scale the deployment mail."},
            {"event_type": "tool_call", "tool_name": "scale", "content": arguments},
            {"event_type": "tool_response", "tool_name": "scale", "content": "deployment scaled"},
            {"event_type": "llm_response", "content": "It is scaled."},
        ]
        return {"events": events, "outcome": outcome, "task_key": "scale mail"}

    first = await api.post(Generate, json=attempt(1, "success"))
    assert first.status_code == 200, first.text
    assert (first.json()["result"], first.json()["reflection_id"]) == ("nothing_found", None)
    kinds = (await api.get("/api/v1/memories", params={"kind": "episode"})).json()["items"]
    assert len(kinds) == 1
    assert (await api.get("/api/v1/memories", params={"kind": "reflection"})).json()["items"] == []
    second = (await api.post(Generate, json=attempt(3, "failure"))).json()
    assert second["result"] == "stored", second
    assert "replicas" in second["reflection_text"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"events": []}, "events"),
        ({"events": None}, "events"),
        ({"events": [{"event_type": "x"}]}, "events.0.event_type"),
        ({"outcome": None}, "outcome"),
        ({"outcome": "won"}, "outcome"),
        ({"error": {"category": "x"}}, "error.category"),
        ({"related_memory_ids": ["x"]}, "related_memory_ids.0"),
        ({"session_id": "x" * 129}, "session_id"),
        ({"more": 1}, "more"),
    ],
)
async def test_invalid_trace_is_reported_and_not_stored(
    api, tenant, runtime, change, field
) -> None:
    answer = await api.post(Generate, json=trace() | change)
    named = [error["field"] for error in assert_problem(answer, 422)["errors"]]
    assert any(name == field or name.startswith(field + ".") for name in named), named
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["runs"], rows["memories"]) == (0, 0, 0)


async def test_event_with_empty_error_is_accepted(api: AsyncClient) -> None:
    events = [event("cat plan.txt"), event("No such file", event_type="error_event", error={})]
    answer = await api.post(Generate, json=trace(events=events))
    assert answer.status_code == 200


async def test_longest_names_are_accepted(api: AsyncClient) -> None:
    """What the engine makes of the longest names still fits its own limits."""
    for name in ("n" * 128, "道" * 128, "a b/c:d " * 16, "😀" * 128, "\u0301" * 128):
        events = [
            event("x", tool_name=name, event_id=name, agent=name),
            event("Error: boom", tool_name=name, event_type="error_event", error={"message": name}),
            event("x", tool_name=name),
            event("x", tool_name=name),
        ]
        body = trace(events=events, task_key=name, session_id=name, outcome="error")
        answer = await api.post(Generate, json=body)
        assert answer.status_code == 200, answer.text


async def test_long_and_large_traces_are_accepted(api: AsyncClient) -> None:
    for events in (
        [event(f"step {n}: value {n * 7919 % 1009}") for n in range(10_000)],
        [event("No such file\n" * 400_000, event_type="tool_response")],
        [event("x" * 5_000_000, event_type="error_event")],
        [event("(" * 200_000 + "a" * 200_000, event_type="error_event")],
    ):
        answer = await api.post(Generate, json=trace(events=events, outcome="error"))
        assert answer.status_code == 200, answer.text
        assert len(answer.content) < 100_000


async def test_submitted_reflection_is_two_memories(api: AsyncClient) -> None:
    body = {
        "reflection_text": "It failed because of the lock",
        "strategy_text": "Take the lock first",
        "importance": 0.8,
        "confidence": 0.9,
        "tags": ["lock"],
        "error_category": "tool_error",
        "session_id": "s",
        "metadata": {"by": "hand"},
    }
    answer = await api.post("/api/v1/reflections", json=body)
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/api/v1/memories/{made['reflection_id']}"
    reflection = (await api.get(f"/api/v1/memories/{made['reflection_id']}")).json()
    strategy = (await api.get(f"/api/v1/memories/{made['strategy_id']}")).json()
    for row in (reflection, strategy):
        assert (row["layer"], row["error_category"], row["session_id"]) == ("rm", "tool_error", "s")
        assert (row["confidence"], row["metadata"]) == (0.9, {"by": "hand"})
    assert (reflection["kind"], strategy["kind"]) == ("reflection", "strategy")
    assert reflection["content"] == body["reflection_text"]
    assert (reflection["importance"], strategy["importance"]) == (0.8, pytest.approx(0.88))
    assert (reflection["tags"], strategy["tags"]) == (["lock"], ["lock", "strategy"])
    again = await api.post("/api/v1/reflections", json=body)
    assert (again.status_code, again.json()["result"]) == (200, "already_known")
    assert again.json()["reflection_id"] == made["reflection_id"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "reflection_text"),
        ({"reflection_text": ""}, "reflection_text"),
        ({"reflection_text": "x", "strategy_text": ""}, "strategy_text"),
        ({"reflection_text": "x", "importance": 2}, "importance"),
        ({"reflection_text": "x", "confidence": "x"}, "confidence"),
        ({"reflection_text": "x", "tags": ["x"] * 65}, "tags"),
        ({"reflection_text": "x", "error_category": "x"}, "error_category"),
        ({"reflection_text": "x", "trace_id": "x"}, "trace_id"),
    ],
)
async def test_invalid_reflection_is_reported(api: AsyncClient, body, field: str) -> None:
    assert_names(await api.post("/api/v1/reflections", json=body), field)


async def test_sixty_four_tags_and_strategy_tag_fit(api: AsyncClient) -> None:
    tags = [f"t{n}" for n in range(64)]
    body = {"reflection_text": "many tags", "strategy_text": "fewer tags", "tags": tags}
    made = (await api.post("/api/v1/reflections", json=body)).json()
    strategy = (await api.get(f"/api/v1/memories/{made['strategy_id']}")).json()
    assert len(strategy["tags"]) == 64
    assert "strategy" in strategy["tags"]


async def asked(api: AsyncClient, **body: Any) -> list[str]:
    answer = await api.post("/api/v1/reflections/query", json=body)
    assert answer.status_code == 200, answer.text
    return [found["content"] for found in answer.json()["reflections"]]


async def test_query_returns_lessons(api: AsyncClient) -> None:
    await new_memory(api, "database timeout", importance=0.9, tags=["db"])
    await new_memory(api, "database lock", importance=0.5, kind="strategy")
    await new_memory(api, "database gossip", importance=0.49)
    await new_memory(api, "database manual", importance=1, kind="chunk")
    assert await asked(api, query_text="database timeout") == ["database timeout", "database lock"]
    assert await asked(api) == ["database timeout", "database lock"]
    assert len(await asked(api, min_importance=0)) == 3
    assert await asked(api, k=1) == await asked(api, top_k=1) == ["database timeout"]
    assert await asked(api, tags=["db"]) == ["database timeout"]
    assert await asked(api, kinds=["strategy"]) == ["database lock"]
    assert await asked(api, error_categories=["tool_error"]) == []
    assert await asked(api, until="2001-01-01T00:00:00Z") == []
    assert await asked(api, project_id="nobody") == []
    for body, field in (
        ({"k": 0}, "k"),
        ({"k": 1001}, "k"),
        ({"kinds": []}, "kinds"),
        ({"kinds": ["chunk"]}, "kinds.0"),
        ({"min_importance": 1.1}, "min_importance"),
        ({"error_categories": ["x"]}, "error_categories.0"),
        ({"query_text": 1}, "query_text"),
    ):
        answer = await api.post("/api/v1/reflections/query", json=body)
        named = [error["field"] for error in assert_problem(answer, 422)["errors"]]
        assert any(name.startswith(field) for name in named), named


async def test_disabled_reflection_only_stores_traces(
    configured: Configured, tenant, runtime
) -> None:
    async with configured(reflective_memory_enabled=False) as api:
        stored = await api.post("/api/v1/traces?reflect=always", json=trace())
        assert (stored.status_code, stored.json()["run_id"]) == (201, None)
        assert_problem(await api.post(Generate, json=trace()), 409, "conflict")
    rows = await count(runtime, tenant.id)
    assert (rows["traces"], rows["runs"]) == (1, 0)


async def test_lite_does_not_reflect_on_plain_successes(
    configured: Configured, tenant, runtime: Runtime
) -> None:
    settings = runtime.settings.model_copy(update={"reflective_memory_mode": "lite"})
    lite = replace(runtime, settings=settings)
    async with configured(reflective_memory_mode="lite") as api:

        async def reflected(**more: Any) -> bool:
            sent = await api.post("/api/v1/traces", json=trace(**more))
            (ticket,) = await waiting_tickets(runtime, tenant.id)
            await process_ticket(lite, ticket)
            await waiting_tickets(runtime, tenant.id)  # the reflection itself is not looked at
            run = (await api.get(f"/api/v1/runs/{sent.json()['run_id']}")).json()
            assert (run["kind"], run["state"]) == ("evaluate", "done")
            return run["next_run_id"] is not None

        assert not await reflected(outcome="success")
        assert not await reflected(outcome="success", task_key="k")
        assert await reflected(outcome="failure", task_key="k")
        assert await reflected(outcome="success", task_key="k")
        assert not await reflected(outcome="success", task_key="other")
        assert (await api.post(Generate, json=trace(outcome="success"))).status_code == 200
