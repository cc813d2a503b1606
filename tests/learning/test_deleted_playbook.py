"""A trace that names a deleted playbook is stored and evaluated, and does not bring it back."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.tickets import waiting_tickets

FAILED: dict[str, Any] = {
    "outcome": "failure",
    "error": {"error_category": "timeout_error", "error_message": "fetch timed out"},
    "task_description": "Bring the monthly report",
    "playbook": "reports",
    "events": [
        {"event_type": "user_message", "content": "Bring the monthly report"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report, march)"},
        {
            "event_type": "error_event",
            "tool_name": "fetch",
            "content": "connection timed out after 30 s",
        },
    ],
}


@pytest.fixture
def learn(api: AsyncClient, tenant: TestTenant, drain: Any):
    """Send a trace, do all the work; answers the steps, first to last."""

    async def send(reflect: str = "auto", **changes: Any) -> list[dict[str, Any]]:
        answer = await api.post(f"/api/v1/traces?reflect={reflect}", json=FAILED | changes)
        assert answer.status_code in (200, 201), answer.text
        await drain(tenant.id)
        return await steps(api, answer.json()["run_id"])

    return send


async def steps(api: AsyncClient, run_id: str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while run_id is not None:
        found.append((await api.get(f"/api/v1/runs/{run_id}")).json())
        run_id = found[-1]["next_run_id"]
    return found


async def playbooks(api: AsyncClient) -> list[str]:
    found = (await api.get("/api/v1/playbooks")).json()["items"]
    return [playbook["name"] for playbook in found]


async def test_trace_leaves_deleted_playbook_deleted(api: AsyncClient, learn: Any) -> None:
    assert [step["kind"] for step in await learn()] == ["evaluate", "reflect", "curate", "apply"]
    (await api.delete("/api/v1/playbooks/reports")).raise_for_status()
    before = (await api.get("/api/v1/memories?kind=strategy")).json()["items"]
    other = {"task_description": "Bring the yearly report", "session_id": "other"}
    (evaluated,) = await learn("always", **other)
    assert (evaluated["kind"], evaluated["state"]) == ("evaluate", "done")
    assert (evaluated["result"]["reflect"], evaluated["result"]["verdict"]) == (False, "failure")
    assert evaluated["result"]["reason"] == "The playbook reports is deleted."
    trace = (await api.get(f"/api/v1/traces/{evaluated['trace_id']}")).json()
    assert trace["playbook"] == "reports"
    assert (await api.get("/api/v1/memories?kind=strategy")).json()["items"] == before
    assert await playbooks(api) == []


async def test_playbook_deleted_while_its_lesson_is_on_its_way_stays_deleted(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant
) -> None:
    sent = await api.post("/api/v1/traces", json=FAILED)
    for _ in range(3):  # evaluate, reflect, curate
        for ticket in await waiting_tickets(runtime, tenant.id):
            await process_ticket(runtime, ticket)
    (await api.delete("/api/v1/playbooks/reports")).raise_for_status()
    for ticket in await waiting_tickets(runtime, tenant.id):
        await process_ticket(runtime, ticket)
    *_, last = await steps(api, sent.json()["run_id"])
    assert (last["kind"], last["state"]) == ("apply", "done")
    assert last["result"]["rejected_reasons"] == ["The playbook is deleted."]
    assert await playbooks(api) == []


@pytest.mark.parametrize("way", ["put", "restore"])
async def test_put_and_restore_bring_it_back(api: AsyncClient, learn: Any, way: str) -> None:
    await learn()
    (playbook,) = (await api.get("/api/v1/playbooks")).json()["items"]
    (await api.delete("/api/v1/playbooks/reports")).raise_for_status()
    if way == "put":
        body = {"sections": {"mistakes": []}}
        answer = await api.put("/api/v1/playbooks/reports", json=body)
    else:
        answer = await api.post(
            "/api/v1/playbooks/reports/restore", json={"version": playbook["version"]}
        )
    assert answer.is_success, answer.text
    assert await playbooks(api) == ["reports"]
    taught = await learn(task_description="Bring the yearly report", session_id="other")
    assert [step["kind"] for step in taught][:2] == ["evaluate", "reflect"]
