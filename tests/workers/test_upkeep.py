"""Housekeeping: what was left behind is picked up, and doing it again changes nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import func, select, text, update

from apps.memory_api.jobs import runs
from apps.memory_api.jobs.tables import IdempotencyKey, Run
from apps.memory_api.memory.tables import ScopeStat
from apps.memory_api.playbook.tables import Serving
from apps.memory_api.runtime import Runtime
from apps.memory_api.tenants.tables import Tenant
from apps.memory_api.traces.tables import Trace
from apps.memory_api.workers import forget, upkeep
from tests.queue import waiting_tickets

OPEN = {"state": "open", "events": [{"event_type": "tool_call", "content": "ls"}]}
HOURS = text("interval '3 hours'")


@pytest.fixture
def keep_up(runtime: Runtime, worker_runtime: Runtime, tenant: Any, drain: Any):
    """One round of upkeep for the tenant; answers what it did."""

    async def round_of() -> dict[str, int]:
        await upkeep.fan_out(worker_runtime)
        await drain(tenant.id)
        async with runtime.sessions.tenant(tenant.id) as session:
            run = await session.scalar(
                select(Run)
                .where(Run.tenant_id == tenant.id, Run.kind == upkeep.KIND)
                .order_by(Run.created_at.desc())
                .limit(1)
            )
        assert run is not None
        assert run.state == "done", run.error
        return run.result

    return round_of


async def age(runtime: Runtime, tenant_id: UUID, table: Any, *columns: str) -> None:
    """Make rows three hours older."""
    async with runtime.sessions.tenant(tenant_id) as session:
        await session.execute(
            update(table)
            .where(table.tenant_id == tenant_id)
            .values({column: getattr(table, column) - HOURS for column in columns})
        )


async def runs_of(runtime: Runtime, tenant_id: UUID, kind: str) -> list[Run]:
    async with runtime.sessions.tenant(tenant_id) as session:
        rows = await session.scalars(
            select(Run).where(Run.tenant_id == tenant_id, Run.kind == kind)
        )
        return list(rows)


async def test_a_trace_left_open_ends_as_timeout_and_is_reflected_on(
    runtime, api, tenant, keep_up
) -> None:
    stale = (await api.post("/api/v1/traces", json=OPEN)).json()["trace_id"]
    await age(runtime, tenant.id, Trace, "created_at", "updated_at")
    fresh = (await api.post("/api/v1/traces", json=OPEN)).json()["trace_id"]
    assert (await keep_up())["timed_out"] == 1
    ended = (await api.get(f"/api/v1/traces/{stale}")).json()
    assert (ended["state"], ended["outcome"]) == ("closed", "timeout")
    assert (await api.get(f"/api/v1/traces/{fresh}")).json()["state"] == "open"
    assert [run.state for run in await runs_of(runtime, tenant.id, "reflect")] == ["done"]
    assert (await keep_up())["timed_out"] == 0


async def test_nothing_is_reflected_on_where_reflection_is_off(runtime, api, tenant, drain) -> None:
    await api.post("/api/v1/traces", json=OPEN)
    await age(runtime, tenant.id, Trace, "created_at", "updated_at")
    off = runtime.settings.model_copy(update={"reflective_memory_enabled": False})
    quiet = Runtime(off, runtime.sessions, runtime.embedder, runtime.queue)
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await upkeep.close_left_open(quiet, session) == 1
    assert await runs_of(runtime, tenant.id, "reflect") == []


async def test_a_run_whose_ticket_was_lost_is_queued_again(runtime, api, tenant, keep_up) -> None:
    trace = {"outcome": "failure", "events": OPEN["events"]}
    run_id = (await api.post("/api/v1/traces", json=trace)).json()["run_id"]
    assert len(await waiting_tickets(runtime, tenant.id)) == 1  # gone, as by a crash
    assert (await keep_up())["requeued"] == 0, "too early to call it lost"
    await age(runtime, tenant.id, Run, "updated_at")
    assert (await keep_up())["requeued"] == 1
    assert (await api.get(f"/api/v1/runs/{run_id}")).json()["state"] == "done"


async def test_a_run_that_waits_in_the_queue_is_not_queued_twice(
    runtime, api, tenant, drain
) -> None:
    trace = {"outcome": "failure", "events": OPEN["events"]}
    await api.post("/api/v1/traces", json=trace)
    await age(runtime, tenant.id, Run, "updated_at")
    async with runtime.sessions.tenant(tenant.id) as session:
        assert await upkeep.requeue_lost(runtime, session, tenant.id) == 0


async def test_a_lost_ticket_of_upkeep_itself_does_not_end_upkeep(
    runtime, worker_runtime, tenant, keep_up
) -> None:
    await upkeep.fan_out(worker_runtime)
    assert len(await waiting_tickets(runtime, tenant.id)) == 1
    await upkeep.fan_out(worker_runtime)
    assert await waiting_tickets(runtime, tenant.id) == [], "one is waiting already"
    await age(runtime, tenant.id, Run, "updated_at")
    assert (await keep_up())["requeued"] == 1
    assert {run.state for run in await runs_of(runtime, tenant.id, upkeep.KIND)} == {"done"}


async def test_one_run_a_tenant_and_none_for_a_closed_one(
    runtime, worker_runtime, owner, make_tenant
) -> None:
    active, closed = await make_tenant(), await make_tenant()
    async with owner.tenant(closed.id) as session:
        await session.execute(update(Tenant).where(Tenant.id == closed.id).values(status="closed"))
    await asyncio.gather(upkeep.fan_out(worker_runtime), upkeep.fan_out(worker_runtime))
    await upkeep.fan_out(worker_runtime)
    assert await runs_of(runtime, closed.id, upkeep.KIND) == []
    made = await runs_of(runtime, active.id, upkeep.KIND)
    assert 1 <= len(made) <= 2, "two processes at the same moment may both make one"


async def test_as_the_app_it_sees_nobody(runtime, tenant) -> None:
    await upkeep.fan_out(runtime)
    assert await runs_of(runtime, tenant.id, upkeep.KIND) == []


async def test_statistics_are_folded_and_the_sums_stay(runtime, api, tenant, keep_up) -> None:
    for number in range(5):
        memory = {"content": f"Lesson {number}", "kind": "insight"}
        made = (await api.post("/api/v1/memories", json=memory)).json()
        if number % 2:
            await api.delete(f"/api/v1/memories/{made['id']}")
    before = await statistics(runtime, tenant.id)
    assert [(total, rows > 1) for _, total, rows in before] == [(3, True)]
    await keep_up()
    after = await statistics(runtime, tenant.id)
    assert [(scope, total) for scope, total, _ in after] == [
        (scope, total) for scope, total, _ in before
    ]
    assert all(rows == 1 for *_, rows in after)
    ids = await delta_ids(runtime, tenant.id)
    await keep_up()
    assert await delta_ids(runtime, tenant.id) == ids, "folded statistics are left alone"


async def test_folding_beside_writers_loses_no_count(runtime, api, tenant) -> None:
    async def write(number: int) -> None:
        memory = {"content": f"Lesson {number}", "kind": "insight"}
        (await api.post("/api/v1/memories", json=memory)).raise_for_status()

    async def fold() -> None:
        async with runtime.sessions.tenant(tenant.id) as session:
            await upkeep.fold_statistics(session)

    await asyncio.gather(*(write(n) for n in range(12)), *(fold() for _ in range(6)))
    await fold()
    assert [total for _, total, _ in await statistics(runtime, tenant.id)] == [12]


async def statistics(runtime: Runtime, tenant_id: UUID) -> list[tuple[int, int, int]]:
    async with runtime.sessions.tenant(tenant_id) as session:
        rows = await session.execute(
            select(ScopeStat.scope, func.sum(ScopeStat.delta), func.count())
            .where(ScopeStat.tenant_id == tenant_id)
            .group_by(ScopeStat.scope)
            .order_by(ScopeStat.scope)
        )
        return [(scope, total, count) for scope, total, count in rows]


async def delta_ids(runtime: Runtime, tenant_id: UUID) -> set[UUID]:
    async with runtime.sessions.tenant(tenant_id) as session:
        rows = await session.scalars(select(ScopeStat.id).where(ScopeStat.tenant_id == tenant_id))
        return set(rows)


async def test_old_answers_and_old_upkeep_are_forgotten(runtime, api, tenant, keep_up) -> None:
    memory = {"content": "Once"}
    for key in ("old", "new"):
        answer = await api.post("/api/v1/memories", json=memory, headers={"Idempotency-Key": key})
        answer.raise_for_status()
        if key == "old":
            for _ in range(9):
                await age(runtime, tenant.id, IdempotencyKey, "created_at")
    await keep_up()
    for _ in range(9):
        await age(runtime, tenant.id, Run, "created_at")
    await keep_up()
    async with runtime.sessions.tenant(tenant.id) as session:
        kept = await session.scalars(
            select(IdempotencyKey.key).where(IdempotencyKey.tenant_id == tenant.id)
        )
        assert list(kept) == ["new"]
    assert len(await runs_of(runtime, tenant.id, upkeep.KIND)) == 1


async def test_servings_are_kept_for_a_time_and_then_go_in_batches(
    runtime, app, api, tenant, keep_up, monkeypatch
) -> None:
    monkeypatch.setattr(forget, "BATCH", 2)
    deltas = {"deltas": [{"type": "ADD", "section": "pat", "content": "Ask in pages"}]}
    for book in ("one", "two"):
        (await api.post(f"/api/v1/playbooks/{book}/deltas", json=deltas)).raise_for_status()
        for _ in range(3):
            (await api.post(f"/api/v1/playbooks/{book}/render", json={})).raise_for_status()
    await app.state.servings.flush()
    async with runtime.sessions.tenant(tenant.id) as session:
        rows = (await session.scalars(select(Serving).where(Serving.tenant_id == tenant.id))).all()
        for row in rows[:5]:
            row.created_at -= timedelta(days=runtime.settings.servings_days, seconds=1)
    assert len(rows) == 6
    assert (await keep_up())["servings_forgotten"] == 5
    async with runtime.sessions.tenant(tenant.id) as session:
        kept = await session.scalars(
            select(Serving.render_id).where(Serving.tenant_id == tenant.id)
        )
        assert list(kept) == [rows[5].render_id]
    assert (await keep_up())["servings_forgotten"] == 0


async def test_a_dead_upkeep_run_is_kept_to_be_seen(runtime, tenant, keep_up) -> None:
    async with runtime.sessions.tenant(tenant.id) as session:
        run = runs.new_run(session, upkeep.KIND, project_id="default")
        run.state = "dead"
    for _ in range(9):
        await age(runtime, tenant.id, Run, "created_at")
    await keep_up()
    states = {run.state for run in await runs_of(runtime, tenant.id, upkeep.KIND)}
    assert states == {"dead", "done"}
