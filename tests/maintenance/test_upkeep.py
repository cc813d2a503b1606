"""Housekeeping: what was left behind is picked up, and doing it again changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import delete, func, select, update

from memory_api.api.idempotency import IdempotencyKeyRow
from memory_api.auth.tables import TenantRow
from memory_api.core.db import transaction_time
from memory_api.maintenance import upkeep
from memory_api.maintenance.retention import expiry
from memory_api.maintenance.tasks import TASKS
from memory_api.memories.index import writer
from memory_api.memories.tables import ScopeStatRow
from memory_api.playbooks.tables import MemoryUsageRow, RetrievalRow
from memory_api.runs import lifecycle
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.tables import TraceRow
from tests.support.tickets import waiting_tickets

pytestmark = pytest.mark.usefixtures("upkeep_of_test_tenants")

OPEN = {"state": "open", "events": [{"event_type": "tool_call", "content": "ls"}]}
HOURS = timedelta(hours=3)


@pytest.fixture
def run_upkeep_round(runtime: Runtime, worker_runtime: Runtime, tenant: Any, drain: Any):
    """One round of upkeep for the tenant; answers what it did."""

    async def round_of() -> dict[str, int]:
        await upkeep.enqueue_upkeep(worker_runtime)
        await drain(tenant.id)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            run = await session.scalar(
                select(RunRow)
                .where(RunRow.tenant_id == tenant.id, RunRow.kind == upkeep.UPKEEP)
                .order_by(RunRow.created_at.desc())
                .limit(1)
            )
        assert run is not None
        assert run.state == "done", run.error
        return run.result

    return round_of


async def age(
    runtime: Runtime, tenant_id: UUID, table: Any, *columns: str, by: timedelta = HOURS
) -> None:
    """Make rows as old as this."""
    async with runtime.sessions.for_tenant(tenant_id) as session:
        await session.execute(
            update(table)
            .where(table.tenant_id == tenant_id)
            .values(dict.fromkeys(columns, func.now() - by))
        )


async def runs_of(runtime: Runtime, tenant_id: UUID, kind: str) -> list[RunRow]:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        rows = await session.scalars(
            select(RunRow).where(RunRow.tenant_id == tenant_id, RunRow.kind == kind)
        )
        return list(rows)


async def test_stale_open_trace_is_closed_with_the_outcome_that_it_has(
    runtime, api, tenant, run_upkeep_round
) -> None:
    stale = (await api.post("/api/v1/traces", json=OPEN)).json()["trace_id"]
    known = (await api.post("/api/v1/traces", json=OPEN | {"outcome": "failure"})).json()
    await age(runtime, tenant.id, TraceRow, "created_at", "updated_at")
    fresh = (await api.post("/api/v1/traces", json=OPEN)).json()["trace_id"]
    assert (await run_upkeep_round())["traces_closed"] == 2
    ended = (await api.get(f"/api/v1/traces/{stale}")).json()
    assert (ended["state"], ended["outcome"]) == ("closed", None)
    assert ended["metadata"] == {"end_reason": "idle"}
    assert (await api.get(f"/api/v1/traces/{fresh}")).json()["state"] == "open"
    learned = [(run.trace_id, run.state) for run in await runs_of(runtime, tenant.id, "reflect")]
    assert learned == [(UUID(known["trace_id"]), "done")]
    assert (await run_upkeep_round())["traces_closed"] == 0


async def test_stale_trace_is_not_reflected_on_when_disabled(runtime, api, tenant, drain) -> None:
    await api.post("/api/v1/traces", json=OPEN)
    await age(runtime, tenant.id, TraceRow, "created_at", "updated_at")
    off = runtime.settings.model_copy(update={"reflective_memory_enabled": False})
    quiet = replace(runtime, settings=off)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await upkeep.close_stale_traces(quiet, session) == 1
    assert await runs_of(runtime, tenant.id, "reflect") == []


async def test_run_with_lost_ticket_is_queued_again(runtime, api, tenant, run_upkeep_round) -> None:
    trace = {"outcome": "failure", "events": OPEN["events"]}
    run_id = (await api.post("/api/v1/traces", json=trace)).json()["run_id"]
    assert len(await waiting_tickets(runtime, tenant.id)) == 1  # gone, as by a crash
    assert (await run_upkeep_round())["runs_requeued"] == 0, "too early to call it lost"
    await age(runtime, tenant.id, RunRow, "updated_at")
    assert (await run_upkeep_round())["runs_requeued"] == 1
    assert (await api.get(f"/api/v1/runs/{run_id}")).json()["state"] == "done"


async def test_waiting_run_is_not_queued_twice(runtime, api, tenant, drain) -> None:
    trace = {"outcome": "failure", "events": OPEN["events"]}
    await api.post("/api/v1/traces", json=trace)
    await age(runtime, tenant.id, RunRow, "updated_at")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await upkeep.requeue_lost_runs(runtime, session, tenant.id) == 0


async def test_lost_upkeep_ticket_does_not_stop_upkeep(
    runtime, worker_runtime, tenant, run_upkeep_round
) -> None:
    await upkeep.enqueue_upkeep(worker_runtime)
    assert len(await waiting_tickets(runtime, tenant.id)) == 1
    await upkeep.enqueue_upkeep(worker_runtime)
    assert await waiting_tickets(runtime, tenant.id) == [], "one is waiting already"
    await age(runtime, tenant.id, RunRow, "updated_at")
    assert (await run_upkeep_round())["runs_requeued"] == 1
    assert {run.state for run in await runs_of(runtime, tenant.id, upkeep.UPKEEP)} == {"done"}


async def test_one_upkeep_run_per_active_tenant(
    runtime, worker_runtime, owner, make_tenant
) -> None:
    active, closed = await make_tenant(), await make_tenant()
    async with owner.for_tenant(closed.id) as session:
        await session.execute(
            update(TenantRow).where(TenantRow.id == closed.id).values(status="closed")
        )
    await asyncio.gather(
        upkeep.enqueue_upkeep(worker_runtime), upkeep.enqueue_upkeep(worker_runtime)
    )
    await upkeep.enqueue_upkeep(worker_runtime)
    assert await runs_of(runtime, closed.id, upkeep.UPKEEP) == []
    made = await runs_of(runtime, active.id, upkeep.UPKEEP)
    assert 1 <= len(made) <= 2, "two processes at the same moment may both make one"


async def test_folding_statistics_keeps_sums(runtime, api, tenant, run_upkeep_round) -> None:
    for number in range(5):
        memory = {"content": f"Lesson {number}", "kind": "insight"}
        made = (await api.post("/api/v1/memories", json=memory)).json()
        if number % 2:
            await api.delete(f"/api/v1/memories/{made['id']}")
    before = await statistics(runtime, tenant.id)
    assert [(total, rows > 1) for _, total, rows in before] == [(3, True)]
    await run_upkeep_round()
    after = await statistics(runtime, tenant.id)
    assert [(scope, total) for scope, total, _ in after] == [
        (scope, total) for scope, total, _ in before
    ]
    assert all(rows == 1 for *_, rows in after)
    ids = await delta_ids(runtime, tenant.id)
    await run_upkeep_round()
    assert await delta_ids(runtime, tenant.id) == ids, "folded statistics are left alone"


async def test_folding_during_writes_loses_no_count(runtime, api, tenant) -> None:
    async def write(number: int) -> None:
        memory = {"content": f"Lesson {number}", "kind": "insight"}
        (await api.post("/api/v1/memories", json=memory)).raise_for_status()

    async def fold() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await writer.fold_scope_stats(session)

    await asyncio.gather(*(write(n) for n in range(12)), *(fold() for _ in range(6)))
    await fold()
    assert [total for _, total, _ in await statistics(runtime, tenant.id)] == [12]


async def statistics(runtime: Runtime, tenant_id: UUID) -> list[tuple[int, int, int]]:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        rows = await session.execute(
            select(ScopeStatRow.scope_id, func.sum(ScopeStatRow.delta), func.count())
            .where(ScopeStatRow.tenant_id == tenant_id)
            .group_by(ScopeStatRow.scope_id)
            .order_by(ScopeStatRow.scope_id)
        )
        return [(scope, total, count) for scope, total, count in rows]


async def delta_ids(runtime: Runtime, tenant_id: UUID) -> set[UUID]:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        rows = await session.scalars(
            select(ScopeStatRow.id).where(ScopeStatRow.tenant_id == tenant_id)
        )
        return set(rows)


async def test_expired_responses_and_upkeep_runs_are_deleted(
    runtime, api, tenant, run_upkeep_round
) -> None:
    memory = {"content": "Once"}
    for key in ("old", "new"):
        answer = await api.post("/api/v1/memories", json=memory, headers={"Idempotency-Key": key})
        answer.raise_for_status()
        if key == "old":
            await age(runtime, tenant.id, IdempotencyKeyRow, "created_at", by=9 * HOURS)
    await run_upkeep_round()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for kind in ("maintenance", "webhook", "budget_alert", "erasure", "evaluate"):
            run = lifecycle.new_run(session, kind, project_id="default")
            run.state, run.finished_at = "done", datetime.now(UTC)
    await age(runtime, tenant.id, RunRow, "created_at", "finished_at", by=9 * HOURS)
    await run_upkeep_round()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        kept = await session.scalars(
            select(IdempotencyKeyRow.key).where(IdempotencyKeyRow.tenant_id == tenant.id)
        )
        assert list(kept) == ["new"]
    assert len(await runs_of(runtime, tenant.id, upkeep.UPKEEP)) == 1
    for kind in ("webhook", "budget_alert", "erasure"):
        assert await runs_of(runtime, tenant.id, kind) == []
    assert len(await runs_of(runtime, tenant.id, "evaluate")) == 1


async def test_expired_retrievals_are_deleted_in_batches(
    runtime, app, api, tenant, run_upkeep_round, monkeypatch
) -> None:
    monkeypatch.setattr(expiry, "ROWS_PER_BATCH", 2)
    deltas = {"deltas": [{"type": "ADD", "section": "pat", "content": "Ask in pages"}]}
    for book in ("one", "two"):
        (await api.post(f"/api/v1/playbooks/{book}/deltas", json=deltas)).raise_for_status()
        for _ in range(3):
            (await api.post(f"/api/v1/playbooks/{book}/render", json={})).raise_for_status()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = (
            await session.scalars(select(RetrievalRow).where(RetrievalRow.tenant_id == tenant.id))
        ).all()
        for row in rows[:5]:
            row.created_at -= timedelta(days=runtime.settings.retrieval_retention_days, seconds=1)
    assert len(rows) == 6
    await run_upkeep_round()  # starts the task `retention`
    async with runtime.sessions.for_tenant(tenant.id) as session:
        kept = await session.scalars(
            select(RetrievalRow.id).where(RetrievalRow.tenant_id == tenant.id)
        )
        assert list(kept) == [rows[5].id]


async def test_each_retrieval_is_counted_once(
    runtime, api, tenant, run_upkeep_round, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the previous upkeep is so old that its run is deleted now."""
    deltas = {"deltas": [{"type": "ADD", "section": "pat", "content": "Ask in pages"}]}
    (await api.post("/api/v1/playbooks/book/deltas", json=deltas)).raise_for_status()
    counts: list[int] = []
    for expected_delay in (upkeep.USE_COUNT_DELAY, timedelta(0), timedelta(0)):
        monkeypatch.setattr(upkeep, "USE_COUNT_DELAY", expected_delay)
        (await api.post("/api/v1/playbooks/book/render", json={})).raise_for_status()
        await run_upkeep_round()
        async with runtime.sessions.for_tenant(tenant.id) as session:
            count = select(func.sum(MemoryUsageRow.use_count))
            counts.append(await session.scalar(count.where(MemoryUsageRow.tenant_id == tenant.id)))
        for _ in range(9):
            await age(runtime, tenant.id, RunRow, "created_at")
    assert counts == [None, 2, 3], "a new retrieval waits for the next upkeep"


async def test_dead_upkeep_run_is_kept(runtime, tenant, run_upkeep_round) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = lifecycle.new_run(session, upkeep.UPKEEP, project_id="default")
        run.state, run.finished_at = "dead", datetime.now(UTC)
    await age(runtime, tenant.id, RunRow, "created_at", "finished_at", by=9 * HOURS)
    await run_upkeep_round()
    states = {run.state for run in await runs_of(runtime, tenant.id, upkeep.UPKEEP)}
    assert states == {"dead", "done"}


async def test_upkeep_of_an_idle_tenant_is_due_when_a_retention_ends(
    runtime, api, tenant, run_upkeep_round
) -> None:
    """Four days after its last request, nobody has used the tenant; the fifth ends a policy."""
    policy = {"items": [{"project_id": "short", "trace_days": 5}]}
    (await api.put("/api/v1/retention", json=policy)).raise_for_status()
    for project in ("short", "other"):
        trace = {"project_id": project, "events": OPEN["events"]}
        (await api.post("/api/v1/traces", json=trace)).raise_for_status()
    await run_upkeep_round()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        now, days = await transaction_time(session), timedelta(days=4)
        await session.execute(
            update(TraceRow).where(TraceRow.tenant_id == tenant.id).values(created_at=now - days)
        )
        due_at = await upkeep.next_upkeep(session, runtime.settings, uuid4())
        retention = TASKS["retention"]
        tomorrow = retention.period_start(now) + timedelta(days=1)
        assert due_at == tomorrow + timedelta(days=1), "the first run after the end"
        await session.execute(
            update(TraceRow)
            .where(TraceRow.tenant_id == tenant.id, TraceRow.project_id == "short")
            .values(created_at=now - 2 * days)
        )
        assert await upkeep.next_upkeep(session, runtime.settings, uuid4()) == tomorrow, "overdue"
        await session.execute(
            delete(TraceRow).where(TraceRow.tenant_id == tenant.id, TraceRow.project_id == "short")
        )
        idle = await upkeep.next_upkeep(session, runtime.settings, uuid4())
        assert idle > now + timedelta(days=6), "the other project has no limit"


async def test_old_runs_are_deleted_whatever_their_kind(
    runtime, tenant, run_upkeep_round, monkeypatch
) -> None:
    monkeypatch.setattr(expiry, "ROWS_PER_BATCH", 2)
    too_old = timedelta(days=runtime.settings.run_retention_days, seconds=1)
    states = ("done", "failed", "dead", "done", "running")
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for state in states:
            run = lifecycle.new_run(session, "evaluate", project_id="default")
            run.state, run.created_at = state, datetime.now(UTC) - too_old
            run.lease_until = datetime.now(UTC) + timedelta(hours=1)
        new = lifecycle.new_run(session, "evaluate", project_id="default")
        new.state = "done"
    result = await run_upkeep_round()
    assert result["runs_deleted"] == 4
    assert {run.state for run in await runs_of(runtime, tenant.id, "evaluate")} == {
        "running",
        "done",
    }
