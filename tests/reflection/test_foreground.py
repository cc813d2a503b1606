"""What all routes that execute a run while the client waits have in common."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import func, select, update

from memory_api.run_queue.admission import AdmissionControl
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.tables import TraceRow
from tests.conftest import TestTenant
from tests.support.problems import assert_problem

EVENTS = [
    {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(march)"},
    {"event_type": "error_event", "tool_name": "fetch", "content": "connection timed out"},
]
TRACE = {"outcome": "failure", "events": EVENTS, "external_id": "a trace"}
TRAJECTORY = {"trajectory": {"query": "2 + 2?", "generated_answer": "5"}, "ground_truth": "4"}
TRANSCRIPT = {"messages": [{"role": "user", "content": "Fetch the report of March."}]}
REFLECT_ROUTES = {
    "/api/v1/reflections/generate": (TRACE, {"external_id": "another trace"}),
    "/api/v1/trajectories/reflect": (TRAJECTORY, {"ground_truth": "four"}),
    "/api/v1/transcripts/reflect": (TRANSCRIPT, {"task_key": "another"}),
}
QUERY = {"query": "Refund a pending order"}


@pytest.mark.parametrize("path", [*REFLECT_ROUTES, "/workflow/run"])
async def test_full_queue_refuses_new_work_and_stores_nothing(
    api: AsyncClient,
    runtime: Runtime,
    tenant: TestTenant,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
) -> None:
    body, changes = REFLECT_ROUTES.get(path, (QUERY, {}))
    (await api.post(path, json=body)).raise_for_status()
    monkeypatch.setattr(runtime.queue, "admission", AdmissionControl(0, 10**9))
    assert_problem(await api.post(path, json=body | changes), 429, "queue_full")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        count = select(func.count()).where(TraceRow.tenant_id == tenant.id)
        assert await session.scalar(count) == 1


@pytest.mark.parametrize("path", REFLECT_ROUTES)
async def test_duplicate_needs_no_admission(
    api: AsyncClient, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    body, _ = REFLECT_ROUTES[path]
    first = (await api.post(path, json=body)).json()
    monkeypatch.setattr(runtime.queue, "admission", AdmissionControl(0, 10**9))
    again = await api.post(path, json=body)
    assert again.status_code == 200, again.text
    assert again.json() == first | {"duplicate": True}


@pytest.mark.parametrize("state", ["failed", "dead"])
@pytest.mark.parametrize("path", REFLECT_ROUTES)
async def test_duplicate_of_a_failed_run_gets_a_new_run(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, path: str, state: str
) -> None:
    body, _ = REFLECT_ROUTES[path]
    first = (await api.post(path, json=body)).json()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        failed = RunRow.tenant_id == tenant.id, RunRow.id == UUID(first["run_id"])
        await session.execute(update(RunRow).where(*failed).values(state=state))
    again: dict[str, Any] = (await api.post(path, json=body)).json()
    assert (again["trace_id"], again["duplicate"]) == (first["trace_id"], False)
    assert again["run_id"] != first["run_id"]


@pytest.mark.parametrize("path", REFLECT_ROUTES)
async def test_duplicate_of_an_unfinished_run_is_answered_with_that_run(
    api: AsyncClient, path: str
) -> None:
    body, _ = REFLECT_ROUTES[path]
    accepted = await api.post(path, json=body, headers={"Prefer": "respond-async"})
    assert accepted.status_code == 202, accepted.text
    again = await api.post(path, json=body)
    assert (again.status_code, again.json()) == (202, accepted.json())
    assert again.headers["location"] == accepted.headers["location"]


async def test_same_query_twice_is_answered_twice(api: AsyncClient) -> None:
    first, second = [(await api.post("/workflow/run", json=QUERY)).json() for _ in range(2)]
    assert first["trace_id"] != second["trace_id"]
    assert first["run_id"] != second["run_id"]
