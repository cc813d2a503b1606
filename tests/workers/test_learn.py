"""The loop: a trace becomes advice, in steps that are queued, counted and tried again one by one."""

from __future__ import annotations

from typing import Any

import pytest
from httpx2 import AsyncClient

from tests.conftest import TestTenant

FAILED: dict[str, Any] = {
    "outcome": "failure",
    "task_description": "Bring the monthly report",
    "playbook": "reports",
    "events": [
        {"event_type": "user_message", "content": "Bring the monthly report"},
        {"event_type": "tool_call", "tool_name": "fetch", "content": "fetch(report, march)"},
        {
            "event_type": "error_event",
            "tool_name": "fetch",
            "content": "connection timed out after 30 s",
            "error": {"message": "timed out", "code": "E_TIME"},
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
    found = []
    while run_id is not None:
        found.append((await api.get(f"/api/v1/runs/{run_id}")).json())
        run_id = found[-1]["next_run_id"]
    return found


async def test_a_trace_becomes_a_bullet_of_its_playbook(api: AsyncClient, learn: Any) -> None:
    chain = await learn()
    assert [step["kind"] for step in chain] == ["evaluate", "reflect", "curate", "merge"]
    assert {step["state"] for step in chain} == {"done"}
    assert [step["parent_id"] for step in chain] == [None, *[chain[0]["id"]] * 3]
    listed = (await api.get(f"/api/v1/runs?parent_id={chain[0]['id']}")).json()["items"]
    assert [step["id"] for step in reversed(listed)] == [step["id"] for step in chain[1:]]
    (change,) = chain[-1]["result"]["changes"]
    assert change["action"] == "added"
    (bullet,) = (await api.get("/api/v1/playbooks/reports/bullets")).json()["items"]
    assert (bullet["id"], bullet["content"]) == (change["key"], change["content"])
    evaluations = await api.get(f"/api/v1/traces/{chain[0]['trace_id']}/evaluations")
    assert evaluations.status_code == 200
