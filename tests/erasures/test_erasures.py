"""Erased content is nowhere in the database; what is left shows that there was something."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from httpx2 import AsyncClient
from sqlalchemy import func, select, text, update

from memory_api.auth.tables import TenantRow
from memory_api.core.catalog import list_tenant_tables
from memory_api.maintenance.retention import expiry
from memory_api.memories.tables import TombstoneRow
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.tables import TraceRow
from tests.conftest import TestTenant
from tests.support.problems import assert_problem

SECRET = "Zyxomma"
"""A word that occurs in what is erased, and nowhere else."""


def trace(**fields: Any) -> dict[str, Any]:
    call = {"event_type": "tool_call", "tool_name": "refund", "content": f"refund {SECRET}"}
    error = {"event_type": "error_event", "tool_name": "refund", "content": f"{SECRET} not found"}
    return {
        "outcome": "failure",
        "task_description": f"Refund the order of {SECRET}",
        "events": [call, error],
        "playbook": "support",
    } | fields


@pytest.fixture
def occurrences(runtime: Runtime, tenant: TestTenant) -> Callable[[str], Awaitable[list[str]]]:
    """The tables with a row of the tenant that contains a text."""

    async def find(word: str) -> list[str]:
        found: list[str] = []
        async with runtime.sessions.for_tenant(tenant.id) as session:
            for name in await list_tenant_tables(session):
                query = f"select count(*) from {name} t where t::text ilike '%{word}%'"
                if await session.scalar(text(query)):
                    found.append(name)
        return found

    return find


async def erase(api: AsyncClient, drain: Any, tenant: TestTenant, **body: Any) -> dict[str, Any]:
    answer = await api.post("/api/v1/erasures", json=body)
    assert answer.status_code == 202, answer.text
    await drain(tenant.id)
    done = (await api.get(answer.headers["location"])).json()
    run = (await api.get(f"/api/v1/runs/{done['run_id']}")).json()
    assert done["state"] == "done", run
    return done


async def test_deleted_trace_is_gone_and_its_lessons_stay(api, tenant, drain, runtime) -> None:
    once = {"Idempotency-Key": "once"}
    sent = (await api.post("/api/v1/traces", json=trace(), headers=once)).json()
    await drain(tenant.id)
    lessons = (await api.get("/api/v1/memories?kind=reflection")).json()["items"]
    url = f"/api/v1/traces/{sent['trace_id']}"
    assert (await api.delete(url, params={"reason": "old"})).status_code == 204
    assert_problem(await api.get(url), 404, "not_found")
    assert_problem(await api.delete(url), 404, "not_found")
    assert (await api.get("/api/v1/memories?kind=reflection")).json()["items"] == lessons != []
    assert (await api.get("/api/v1/memories?kind=episode")).json()["items"] == []
    async with runtime.sessions.for_tenant(tenant.id) as session:
        runs = await session.scalars(select(RunRow).where(RunRow.tenant_id == tenant.id))
        assert {(run.state, run.result) for run in runs if run.trace_id} == {("done", None)}
        tomb = await session.get(TombstoneRow, (tenant.id, "trace", sent["trace_id"]))
        assert tomb is not None
        assert tomb.reason == "old"
    log = (await api.get("/api/v1/audit-log")).json()["items"]
    assert log[0]["action"] == "trace.deleted"


async def test_trace_deleted_while_it_waits_is_not_reflected_on(api, tenant, drain) -> None:
    sent = (await api.post("/api/v1/traces", json=trace())).json()
    await api.delete(f"/api/v1/traces/{sent['trace_id']}")
    await drain(tenant.id)
    run = (await api.get(f"/api/v1/runs/{sent['run_id']}")).json()
    assert (run["state"], run["error"]["code"]) == ("failed", "erased")
    assert (await api.get("/api/v1/memories")).json()["items"] == []


async def test_erased_person_is_in_no_table(api, tenant, drain, occurrences, runtime) -> None:
    theirs = trace(metadata={"subject": SECRET}, session_id=SECRET)
    for attempt in range(3):
        sent = await api.post("/api/v1/traces", json=theirs | {"external_id": f"t{attempt}"})
        sent.raise_for_status()
        await drain(tenant.id)
    memory = {"content": f"{SECRET} likes tea", "metadata": {"subject": SECRET}}
    (await api.post("/api/v1/memories", json=memory)).raise_for_status()
    other = trace(task_description="Another order", metadata={"subject": "b"})
    other["events"] = [{"event_type": "tool_call", "tool_name": "cancel", "content": "cancel 4"}]
    (await api.post("/api/v1/traces", json=other)).raise_for_status()
    await drain(tenant.id)
    assert "memories" in await occurrences(SECRET)
    done = await erase(
        api, drain, tenant, target_kind="person", target_id=SECRET, reason="Asked for it."
    )
    assert done["counts"]["traces"] == 3
    assert done["target_id"].startswith("sha256:")
    assert await occurrences(SECRET) == []
    assert len((await api.get("/api/v1/traces")).json()["items"]) == 1
    again = await erase(api, drain, tenant, target_kind="person", target_id=SECRET)
    assert again["counts"] == {"traces": 0, "memories": 0}
    actions = [e["action"] for e in (await api.get("/api/v1/audit-log")).json()["items"]]
    assert actions[:2] == ["erasure.finished", "erasure.requested"]


@pytest.mark.parametrize("kind", ["person", "trace"])
async def test_lessons_of_a_deleted_trace_are_erased(
    api, tenant, drain, occurrences, kind: str
) -> None:
    theirs = trace(metadata={"subject": SECRET})
    sent = (await api.post("/api/v1/traces", json=theirs)).json()
    await drain(tenant.id)
    assert (await api.delete(f"/api/v1/traces/{sent['trace_id']}")).status_code == 204
    assert "memories" in await occurrences(SECRET)
    target = SECRET if kind == "person" else sent["trace_id"]
    done = await erase(api, drain, tenant, target_kind=kind, target_id=target)
    assert done["counts"]["memories"] > 0
    assert await occurrences(SECRET) == []


async def test_erased_bullet_is_in_no_version(api, tenant, drain, occurrences) -> None:
    url = "/api/v1/playbooks/book"
    deltas = [{"type": "ADD", "section": "pat", "content": f"Ask {SECRET}"}]
    (await api.post(f"{url}/deltas", json={"deltas": deltas})).raise_for_status()
    change = {"content": f"Always ask {SECRET}"}
    (await api.patch(f"{url}/bullets/pat-00001", json=change)).raise_for_status()
    found = (await api.get("/api/v1/memories?kind=bullet")).json()["items"]
    memory_id = found[0]["id"]
    done = await erase(api, drain, tenant, target_kind="memory", target_id=memory_id)
    assert done["counts"] == {"bullets": 1, "memories": 1, "traces": 0}
    assert await occurrences(SECRET) == []
    for version in (1, 2, 3):
        book = (await api.get(url, params={"as_of": version})).json()
        assert SECRET not in json.dumps(book)
    (await api.post(f"{url}/restore", json={"version": 1})).raise_for_status()
    assert (await api.get(f"{url}/bullets")).json()["items"] == []


async def test_tenant_is_erased_by_operator_alone(
    api, tenant, http, drain, occurrences, make_tenant
) -> None:
    other = await make_tenant()
    repeatable = {"Idempotency-Key": f"of {SECRET}"}
    sent = await api.post("/api/v1/traces", json=trace(), headers=repeatable)
    assert sent.status_code == 201, sent.text
    assert {"idempotency_keys", "response_mentions"} <= set(await occurrences(SECRET))
    await drain(tenant.id)
    body = {"target_kind": "tenant", "target_id": tenant.slug}
    assert_problem(await api.post("/api/v1/erasures", json=body), 403, "forbidden")
    auth = other.auth("operator")
    answer = await http.post("/api/v1/erasures", json=body, headers=auth)
    assert answer.status_code == 202, answer.text
    (await http.post(f"/api/v1/tenants/{tenant.slug}/suspend", headers=auth)).raise_for_status()
    await drain(tenant.id)
    assert await occurrences(SECRET) == []
    left = set(await occurrences(str(tenant.id)))
    assert left == {"tombstones", "erasures", "audit_log", "runs"}
    assert_problem(
        await http.post(f"/api/v1/tenants/{tenant.slug}/resume", headers=auth), 404, "not_found"
    )
    again = await http.post("/api/v1/tenants", json={"name": tenant.slug}, headers=auth)
    problem = assert_problem(again, 409, "conflict")
    assert problem["detail"].endswith("was erased. Its name cannot be used again.")


async def test_suspended_tenant_waits(app, api, tenant, http, drain, runtime, make_tenant) -> None:
    operator = (await make_tenant()).auth("operator")
    sent = (await api.post("/api/v1/traces", json=trace())).json()
    url = f"/api/v1/tenants/{tenant.slug}"
    assert_problem(await api.post(f"{url}/suspend"), 403, "forbidden")
    answer = (await http.post(f"{url}/suspend", headers=operator)).json()
    assert answer["status"] == "suspended"
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = await session.get(RunRow, (tenant.id, sent["run_id"]))
        assert run is not None
        assert (run.state, run.attempt_count) == ("queued", 0)
    app.state.api.key_cache.__init__()
    assert_problem(await api.get("/api/v1/traces"), 401, "unauthorized")
    answer = (await http.post(f"{url}/resume", headers=operator)).json()
    assert answer["status"] == "active"
    (await api.get("/api/v1/traces")).raise_for_status()


async def test_export_has_every_row_and_no_secret(api, tenant, drain, runtime) -> None:
    (await api.post("/api/v1/traces", json=trace())).raise_for_status()
    await drain(tenant.id)
    lines = [json.loads(line) for line in (await api.get("/api/v1/export")).text.splitlines()]
    *rows, last = lines
    assert last["table"] is None
    tables = {line["table"] for line in rows}
    assert {"tenants", "traces", "trace_events", "memories", "runs", "memory_links"} <= tables
    assert sum(last["counts"].values()) == len(rows)
    assert rows[0]["row"]["id"] == str(tenant.id)
    assert all(line["row"]["tenant_id"] == str(tenant.id) for line in rows[1:])
    assert "secret_hash" not in json.dumps(lines)


async def test_retention_deletes_by_project(api, tenant, drain, runtime) -> None:
    policies = {"items": [{"trace_days": 30}, {"project_id": "brief", "event_days": 7}]}
    (await api.put("/api/v1/retention", json=policies)).raise_for_status()
    listed = (await api.get("/api/v1/retention")).json()["items"]
    assert [(p["project_id"], p["event_days"]) for p in listed] == [(None, None), ("brief", 7)]
    ids = {}
    for project in ("default", "brief"):
        for days in (3, 40):
            body = trace(project_id=project)
            sent = (await api.post("/api/v1/traces?reflect=never", json=body)).json()
            ids[project, days] = sent["trace_id"]
            async with runtime.sessions.for_tenant(tenant.id) as session:
                await session.execute(
                    update(TraceRow)
                    .where(TraceRow.tenant_id == tenant.id, TraceRow.id == sent["trace_id"])
                    .values(created_at=func.now() - timedelta(days=days))
                )
    await drain(tenant.id)
    for expected in ({"traces_deleted": 1, "events_deleted": 1}, {}):
        answer = await api.post("/api/v1/maintenance/retention")
        await drain(tenant.id)
        result = (await api.get(answer.headers["location"])).json()["result"]
        assert {name: count for name, count in result.items() if count} == expected
    assert_problem(await api.get(f"/api/v1/traces/{ids['default', 40]}"), 404, "not_found")
    for key, events in ((("default", 3), 2), (("brief", 3), 2), (("brief", 40), 0)):
        found = (await api.get(f"/api/v1/traces/{ids[key]}")).json()
        assert len(found["events"]) == events, key


async def test_retention_continues_until_nothing_is_left(
    api, tenant, drain, runtime, monkeypatch
) -> None:
    monkeypatch.setattr(expiry, "MAX_BATCHES_PER_ROUND", 1)
    monkeypatch.setattr(expiry, "TRACES_PER_BATCH", 2)
    policies = {"items": [{"trace_days": 30}]}
    (await api.put("/api/v1/retention", json=policies)).raise_for_status()
    for number in range(5):
        body = trace(external_id=f"old-{number}")
        (await api.post("/api/v1/traces?reflect=never", json=body)).raise_for_status()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        old = {"created_at": func.now() - timedelta(days=40)}
        await session.execute(update(TraceRow).where(TraceRow.tenant_id == tenant.id).values(old))
    await api.post("/api/v1/maintenance/retention")
    while await drain(tenant.id):
        pass
    assert (await api.get("/api/v1/traces")).json()["items"] == []
    runs = (await api.get("/api/v1/runs", params={"kind": "maintenance"})).json()["items"]
    assert [run["result"]["traces_deleted"] for run in reversed(runs)] == [2, 2, 1]


async def test_history_of_another_tenant_cannot_be_erased(runtime, tenant, make_tenant) -> None:
    other = await make_tenant()
    for call in ("hansei_erase_history('{}', '{{}}')", "hansei_erase_rows('{}', 'memories', 1)"):
        with pytest.raises(Exception, match="bound to another tenant"):
            async with runtime.sessions.for_tenant(tenant.id) as session:
                await session.execute(text(f"select {call.format(other.id)}"))
    call = f"select hansei_erase_rows('{tenant.id}', 'audit_log', 1)"
    with pytest.raises(Exception, match="are not erased"):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await session.execute(text(call))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await session.get(TenantRow, tenant.id) is not None
