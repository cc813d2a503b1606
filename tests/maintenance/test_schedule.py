"""Upkeep visits who is due: idle tenants cost nothing, active ones are visited once per period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import select, text

from memory_api.core.ids import new_id
from memory_api.core.resources import read_sql
from memory_api.maintenance import upkeep
from memory_api.maintenance.tasks import TASKS, scheduled_tasks
from memory_api.run_queue.tables import UpkeepScheduleRow
from memory_api.run_queue.upkeep_schedule import (
    CLAIM_DUE_UPKEEP,
    UpkeepSchedule,
    finish_upkeep,
)
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from tests.conftest import Database
from tests.support.problems import assert_problem

NOW = datetime.now(UTC)


@pytest.fixture
async def worker(database: Database) -> AsyncIterator[Any]:
    """A connection as the worker, whose changes are rolled back."""
    connection = await asyncpg.connect(database.url("hansei_worker"))
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


async def due_at(runtime: Runtime, tenant_id: UUID) -> UpkeepScheduleRow | None:
    async with runtime.sessions.without_tenant() as session:
        return await session.get(UpkeepScheduleRow, tenant_id)


async def make_due(runtime: Runtime, tenant_id: UUID) -> None:
    async with runtime.sessions.without_tenant() as session:
        row = await session.get(UpkeepScheduleRow, tenant_id)
        assert row is not None
        row.due_at, row.claimed_until = datetime.now(UTC) - timedelta(days=9), None


async def test_idle_tenants_cost_one_index_lookup(worker: Any) -> None:
    await worker.execute("delete from upkeep_schedule")
    await worker.execute(
        "insert into upkeep_schedule (lane, due_at)"
        " select gen_random_uuid(), now() + interval '3 days' from generate_series(1, 10000)"
    )
    await worker.execute("set local enable_seqscan = off")  # statistics are of an empty table
    values = {"limit": 500, "duration": timedelta(minutes=15)}
    lines = await worker.fetch(
        f"explain (analyze, buffers, costs off, timing off, summary off) {CLAIM_DUE_UPKEEP.text}",
        *(values[name] for name in CLAIM_DUE_UPKEEP.parameters),
    )
    plan = "\n".join(line[0] for line in lines)
    assert "upkeep_schedule_due_at_idx" in plan
    buffers = int(plan.split("Buffers: shared hit=")[1].split()[0])
    assert buffers <= 20, plan  # a scan of all rows reads more than 50


async def test_lost_runs_are_found_by_keys(worker: Any) -> None:
    tenant = new_id()
    await worker.execute(f"set local hansei.tenant_id = '{tenant}'")
    await worker.execute("set local enable_seqscan = off")
    statement = (
        read_sql("maintenance/maintenance.sql", "list_lost_runs")
        .replace(":tenant", f"'{tenant}'")
        .replace(":except_run_id", f"'{tenant}'")
    )
    plan = "\n".join(line[0] for line in await worker.fetch(f"explain {statement}"))
    assert "Seq Scan" not in plan
    assert "tickets_run_id_idx" in plan


async def test_write_makes_upkeep_due_within_minutes(runtime, api, tenant) -> None:
    assert await due_at(runtime, tenant.id) is None
    (await api.get("/api/v1/memories")).raise_for_status()
    assert await due_at(runtime, tenant.id) is None
    (await api.post("/api/v1/memories", json={"content": "Once"})).raise_for_status()
    row = await due_at(runtime, tenant.id)
    assert row is not None
    assert timedelta(minutes=4) < row.due_at - datetime.now(UTC) <= timedelta(minutes=5)


async def test_process_marks_tenant_at_most_every_two_minutes(runtime, tenant) -> None:
    clock = [0.0]
    schedule = UpkeepSchedule(runtime.sessions, lambda: clock[0])
    await schedule.mark_active(tenant.id)
    await make_due(runtime, tenant.id)
    for seconds, is_due in ((119, True), (121, False)):
        clock[0] = seconds
        async with runtime.sessions.without_tenant() as session:
            row = await session.get(UpkeepScheduleRow, tenant.id)
            assert row is not None
            row.due_at = datetime.now(UTC) + timedelta(days=3)
        await schedule.mark_active(tenant.id)
        row = await due_at(runtime, tenant.id)
        assert row is not None
        assert (row.due_at > datetime.now(UTC) + timedelta(days=1)) is is_due


async def test_due_tenant_is_claimed_once(runtime, worker_runtime, tenant) -> None:
    await runtime.upkeep_schedule.mark_active(tenant.id)
    await make_due(runtime, tenant.id)
    claims = await asyncio.gather(*(upkeep.claim_due_tenants(worker_runtime) for _ in range(4)))
    assert sum(claim.count(tenant.id) for claim in claims) == 1


async def test_activity_during_upkeep_is_not_lost(runtime, tenant) -> None:
    await runtime.upkeep_schedule.mark_active(tenant.id)
    await make_due(runtime, tenant.id)
    async with runtime.sessions.without_tenant() as session:
        await session.execute(
            text("update upkeep_schedule set claimed_until = now() + interval '9 minutes'")
        )
    started = datetime.now(UTC)
    await UpkeepSchedule(runtime.sessions).mark_active(tenant.id)
    week = started + timedelta(days=7)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await finish_upkeep(session, tenant.id, started, week)
    row = await due_at(runtime, tenant.id)
    assert row is not None
    assert row.due_at < started + timedelta(minutes=6)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await finish_upkeep(session, tenant.id, started + timedelta(minutes=7), week)
    row = await due_at(runtime, tenant.id)
    assert row is not None
    assert row.due_at - started <= timedelta(hours=6, minutes=1), "active in the last two days"


@pytest.mark.usefixtures("upkeep_of_test_tenants")
async def test_period_has_one_run_of_each_task(runtime, worker_runtime, tenant, drain) -> None:
    for _ in range(3):
        await asyncio.gather(*(upkeep.enqueue_upkeep(worker_runtime) for _ in range(2)))
        await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        rows = await session.scalars(
            select(RunRow).where(RunRow.tenant_id == tenant.id, RunRow.kind == "maintenance")
        )
        runs = {run.input["task"]: run.state for run in rows}
    assert runs == {task.name: "done" for task in scheduled_tasks(runtime.settings)}


def test_periods_start_at_their_hour_and_weeks_on_monday() -> None:
    sunday = datetime(2026, 11, 22, 17, 30, tzinfo=UTC)
    for task in TASKS.values():
        start = task.period_start(sunday)
        assert start <= sunday
        assert task.period_start(start) == start
        assert task.period_start(start - timedelta(seconds=1)) < start


def test_lite_has_no_reflections_on_a_schedule(runtime) -> None:
    lite = runtime.settings.model_copy(update={"reflective_memory_mode": "lite"})
    assert {task.name for task in scheduled_tasks(runtime.settings)} == set(TASKS)
    assert not [task for task in scheduled_tasks(lite) if task.reflects]


async def test_task_runs_on_demand(api, tenant, drain) -> None:
    for name in ("upkeep", *TASKS):
        answer = await api.post(f"/api/v1/maintenance/{name}")
        assert answer.status_code == 202, answer.text
        await drain(tenant.id)
        run = (await api.get(answer.headers["location"])).json()
        assert run["state"] == "done", run
    listed = (await api.get("/api/v1/maintenance")).json()["items"]
    assert [item["task"] for item in listed] == ["upkeep", *TASKS]
    assert_problem(await api.post("/api/v1/maintenance/wash"), 422, "invalid")
