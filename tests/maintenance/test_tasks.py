"""Pruning, dreaming and session summaries: what they change, and that twice is once."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from httpx2 import AsyncClient
from sqlalchemy import func, select, text, update

from memory_api.maintenance import pruning, session_summaries
from memory_api.maintenance.tasks import scheduled_tasks
from memory_api.memories.index.drafts import MemoryDraft, prepare_memories
from memory_api.memories.index.writer import insert_memories
from memory_api.memories.schemas import MemoryKind
from memory_api.memories.tables import MemoryRow
from memory_api.playbooks.tables import MemoryUsageRow
from memory_api.runtime import Runtime
from memory_api.traces.tables import TraceRow
from tests.conftest import TestTenant
from tests.support.problems import assert_problem


async def run_task(api: AsyncClient, drain: Any, tenant: TestTenant, name: str, **body: Any) -> Any:
    answer = await api.post(f"/api/v1/maintenance/{name}", json=body)
    assert answer.status_code == 202, answer.text
    await drain(tenant.id)
    run = (await api.get(answer.headers["location"])).json()
    assert run["state"] == "done", run
    return run["result"]


async def add(api: AsyncClient, content: str, **fields: Any) -> str:
    answer = await api.post("/api/v1/memories", json={"content": content} | fields)
    answer.raise_for_status()
    return answer.json()["id"]


async def make_older(runtime: Runtime, tenant: TestTenant, days: float, *ids: str) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        then = datetime.now(UTC) - timedelta(days=days)
        await session.execute(
            update(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id, MemoryRow.id.in_([UUID(i) for i in ids]))
            .values(created_at=then, updated_at=then)
        )


async def use(runtime: Runtime, tenant: TestTenant, memory_id: str, days_ago: float) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        used_at = datetime.now(UTC) - timedelta(days=days_ago)
        session.add(
            MemoryUsageRow(
                tenant_id=tenant.id, memory_id=UUID(memory_id), use_count=1, last_used_at=used_at
            )
        )


async def test_strength_decays_since_the_last_use_or_change(api, tenant, drain, runtime) -> None:
    """The expected values are computed here from the days since the last of the three times."""
    days = {"protected": 31, "stale": 60, "ancient": 9_000, "changed": 60, "used": 200, "old": 200}
    ids = {name: await add(api, name, importance=0.05) for name in (*days, "pinned", "new")}
    await api.patch(f"/api/v1/memories/{ids['pinned']}", json={"pinned": True})
    for name in (*days, "pinned"):
        await make_older(runtime, tenant, days.get(name, 60), ids[name])
    await api.patch(f"/api/v1/memories/{ids['changed']}", json={"tags": ["seen"]})
    await use(runtime, tenant, ids["used"], 40)
    async with runtime.sessions.for_tenant(tenant.id) as session:  # imported with an old date
        await session.execute(
            update(MemoryRow)
            .where(MemoryRow.tenant_id == tenant.id, MemoryRow.id == UUID(ids["old"]))
            .values(updated_at=func.now())
        )
    report = (await run_task(api, drain, tenant, "pruning"))["report"]
    strengths = {item["id"]: item["strength"] for item in report}
    assert strengths == {
        ids["protected"]: pytest.approx(math.exp(-0.01 * (24 + 1)), abs=1e-3),
        ids["stale"]: pytest.approx(math.exp(-0.01 * (53 + 30)), abs=1e-3),
        ids["used"]: pytest.approx(math.exp(-0.01 * (33 + 10)), abs=1e-3),
        ids["ancient"]: pruning.MIN_STRENGTH,
    }
    await use(runtime, tenant, ids["stale"], 0)
    again = (await run_task(api, drain, tenant, "pruning"))["report"]
    assert {item["id"] for item in again} == strengths.keys() - {ids["stale"]}, "a use restores it"


async def test_maintenance_rewrites_no_memory(api, tenant, drain, runtime) -> None:
    for number in range(5):
        await make_older(runtime, tenant, 60, await add(api, f"memory {number}"))
    versions = text("select array_agg(xmin::text order by id) from memories where tenant_id = :t")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        before = await session.scalar(versions, {"t": tenant.id})
    for task in scheduled_tasks(runtime.settings):
        await run_task(api, drain, tenant, task.name)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await session.scalar(versions, {"t": tenant.id}) == before


async def test_pruning_reports_before_it_acts(api, tenant, drain, runtime) -> None:
    weak, used, strong = [await add(api, n, importance=0.05) for n in ("weak", "used", "strong")]
    await make_older(runtime, tenant, 40, weak, used, strong)
    report = await run_task(api, drain, tenant, "pruning")
    assert report["archived"] == []
    assert {item["id"] for item in report["report"]} == {weak, used, strong}
    assert (await api.get(f"/api/v1/memories/{weak}")).json()["status"] == "active"
    await api.patch(f"/api/v1/memories/{strong}", json={"importance": 0.9})
    await api.patch(f"/api/v1/memories/{used}", json={"tags": ["looked-at"]})
    late = await add(api, "late", importance=0.01)
    await make_older(runtime, tenant, 40, late)
    acted = await run_task(api, drain, tenant, "pruning", apply=True)
    assert acted["archived"] == [weak]
    assert [item["id"] for item in acted["report"]] == [late], "only reported yet"
    archived = (await api.get(f"/api/v1/memories/{weak}")).json()
    assert archived["status"] == "archived"
    found = (await api.post("/api/v1/search", json={"query_text": "weak"})).json()["results"]
    assert weak not in {hit["memory"]["id"] for hit in found}


def episode(number: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "episode", "content": f"Run {number} failed", "importance": 0.8} | fields


async def test_dreaming_without_a_model_claims_nothing(api, tenant, drain) -> None:
    """Important episodes are a sample: three failures of it do not say how often runs fail."""
    for number in range(3):
        await add(api, f"Run {number} failed", kind="episode", importance=0.8)
    for number in range(3):
        await add(api, f"Run {number} went well", kind="episode", importance=0.3)
    assert await run_task(api, drain, tenant, "dreaming") == {"projects": {}}
    for kind in ("reflection", "strategy"):
        listed = await api.get("/api/v1/memories", params={"kind": kind})
        assert listed.json()["items"] == []


async def test_two_episodes_are_too_few_to_dream(api, tenant, drain) -> None:
    for number in range(2):
        await add(api, f"Run {number} failed", kind="episode", importance=0.8)
    assert await run_task(api, drain, tenant, "dreaming") == {"projects": {}}


async def test_lite_does_not_dream(app, api, runtime) -> None:
    lite = runtime.settings.model_copy(update={"reflective_memory_mode": "lite"})
    app.state.runtime = replace(runtime, settings=lite)
    try:
        assert_problem(await api.post("/api/v1/maintenance/dreaming"), 409, "conflict")
        assert (await api.post("/api/v1/maintenance/pruning")).status_code == 202
    finally:
        app.state.runtime = runtime


async def test_session_is_summarized_in_the_order_of_its_runs(api, tenant, drain, runtime) -> None:
    """Whatever order the workers read the traces in."""
    traces: list[str] = []
    for number in range(10):
        body = {
            "task_description": f"Task {number}",
            "outcome": "success",
            "session_id": "ordered",
            "events": [{"event_type": "user_message", "content": f"Task {number}"}],
        }
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        traces.append(sent.raise_for_status().json()["trace_id"])
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = [
            await session.scalar(select(TraceRow).where(TraceRow.id == UUID(trace_id)))
            for trace_id in traces
        ]
        drafts = [
            MemoryDraft(
                kind=MemoryKind.EPISODE,
                project_id="default",
                content=row.task_description,
                source="trace",
                session_id="ordered",
                trace_id=row.id,
            )
            for row in reversed(rows)
        ]
        items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
        await insert_memories(session, items)
    assert await run_task(api, drain, tenant, "summaries") == {
        "sessions_summarized": 1,
        "has_more": False,
    }
    async with runtime.sessions.for_tenant(tenant.id) as session:
        content = await session.scalar(
            select(MemoryRow.content).where(
                MemoryRow.tenant_id == tenant.id, MemoryRow.source == "session_summary"
            )
        )
    assert content.splitlines() == [*(f"Task {number}" for number in range(5)), "5 more."]


async def test_summaries_continue_in_further_runs(api, tenant, drain, runtime, monkeypatch) -> None:
    """With pages of 7 episodes and 2 sessions a run, all of 5 sessions are summarized once."""
    monkeypatch.setattr(session_summaries, "EPISODES_PER_PAGE", 7)
    monkeypatch.setattr(session_summaries, "MAX_SESSIONS_PER_RUN", 2)
    drafts = [
        MemoryDraft(
            kind=MemoryKind.EPISODE,
            project_id="default",
            content=f"Run {number}",
            source="trace",
            session_id=f"session {number % 5}",
        )
        for number in range(50)
    ]
    async with runtime.sessions.for_tenant(tenant.id) as session:  # all are stored at one time
        items = await prepare_memories(await runtime.get_tenant_embedder(tenant.id), drafts)
        await insert_memories(session, items)
    found = select(MemoryRow.session_id).where(
        MemoryRow.tenant_id == tenant.id, MemoryRow.source == "session_summary"
    )
    for _ in range(2):
        await run_task(api, drain, tenant, "summaries")
        async with runtime.sessions.for_tenant(tenant.id) as session:
            summarized = (await session.scalars(found)).all()
        assert sorted(summarized) == [f"session {number}" for number in range(5)]


async def test_session_with_ten_runs_is_summarized_once(api, tenant, drain, runtime) -> None:
    for number in range(9):
        await add(api, f"Run {number}", kind="episode", importance=0.6, session_id="s")
    assert await run_task(api, drain, tenant, "summaries") == {
        "sessions_summarized": 0,
        "has_more": False,
    }
    await add(api, "Run 9", kind="episode", importance=0.6, session_id="s")
    assert await run_task(api, drain, tenant, "summaries") == {
        "sessions_summarized": 1,
        "has_more": False,
    }
    assert await run_task(api, drain, tenant, "summaries") == {
        "sessions_summarized": 0,
        "has_more": False,
    }
    await add(api, "Run 10", kind="episode", importance=0.6, session_id="s")
    assert await run_task(api, drain, tenant, "summaries") == {
        "sessions_summarized": 1,
        "has_more": False,
    }
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.scalars(
            select(MemoryRow).where(
                MemoryRow.tenant_id == tenant.id, MemoryRow.source == "session_summary"
            )
        )
        (summary,) = rows
    assert summary.content.splitlines()[-1] == "6 more."
    assert summary.importance == pytest.approx(0.72)
    assert set(summary.tags) == {"session_summary", "auto_generated"}
