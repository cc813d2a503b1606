"""Real worker processes on the test database: killed, poisoned, told to leave."""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import func, select

from memory_api.memories.tables import MemoryRow
from memory_api.runs.chain import EVALUATE, REFLECT, next_run_id
from memory_api.runs.tables import RunRow
from tests.support.paths import ROOT
from tests.support.tickets import waiting_tickets
from tests.support.worker_processes import DEADLY, SLOW


async def count_episodes(runtime, tenant) -> int | None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return await session.scalar(
            select(func.count()).where(
                MemoryRow.tenant_id == tenant.id, MemoryRow.kind == "episode"
            )
        )


async def test_run_of_killed_worker_is_done_once_by_another(
    runtime, tenant, queue_run, start_worker, wait_for_run, read_run
) -> None:
    run = await queue_run()
    first = await start_worker(lease=1.5, patch=SLOW.format(seconds=600))
    await first.wait_for_line("AT WORK")
    assert (await read_run(run.id)).state == "running"
    await first.kill()
    second = await start_worker(lease=1.5)
    done = await wait_for_run(run.id)
    assert (done.state, done.attempt_count) == ("done", 2)
    assert await count_episodes(runtime, tenant) == 1
    assert await second.stop() == 0


async def test_chain_of_killed_worker_is_resumed_at_its_step(
    runtime, tenant, queue_run, start_worker, wait_for_run, read_run
) -> None:
    """The worker goes on with REFLECT without a new ticket, and dies in it."""
    first_step = await queue_run(EVALUATE)
    first = await start_worker(lease=1.5, patch=SLOW.format(seconds=600))
    await first.wait_for_line("AT WORK")
    await first.kill()
    evaluated = await read_run(first_step.id)
    assert (evaluated.state, evaluated.attempt_count) == ("done", 1)
    second = await start_worker(lease=1.5)
    reflected = await wait_for_run(next_run_id(evaluated))
    assert (reflected.kind, reflected.state, reflected.attempt_count) == (REFLECT, "done", 2)
    assert (await read_run(first_step.id)).attempt_count == 1
    assert await count_episodes(runtime, tenant) == 1
    assert await second.stop() == 0
    assert await waiting_tickets(runtime, tenant.id) == []


async def test_poisoned_run_ends_dead_without_affecting_others(
    tenant, queue_run, start_worker, wait_for_run, read_run
) -> None:
    """A run that kills every process that touches it is counted, and buried when it had its
    chances."""
    poison = await queue_run(max_attempts=2)
    for attempt in (1, 2):
        victim = await start_worker(lease=0.6, patch=DEADLY)
        assert await victim.wait() == -9
        now = await read_run(poison.id)
        assert (now.state, now.attempt_count) == ("running", attempt)
    healthy = await queue_run()
    survivor = await start_worker(lease=0.6)
    assert (await wait_for_run(healthy.id)).state == "done"
    dead = await wait_for_run(poison.id)
    assert (dead.state, dead.attempt_count, dead.lease_owner) == ("dead", 2, None)
    assert dead.error["type"] == "Lost"
    assert await survivor.stop() == 0


async def test_stopping_worker_finishes_its_run(tenant, queue_run, start_worker, read_run) -> None:
    run = await queue_run()
    worker = await start_worker(patch=SLOW.format(seconds=0.5))
    await worker.wait_for_line("AT WORK")
    assert await worker.stop() == 0
    done = await read_run(run.id)
    assert (done.state, done.attempt_count, done.lease_owner) == ("done", 1, None)


async def test_worker_is_notified_of_work_and_stops_at_once_when_idle(
    tenant, queue_run, start_worker, wait_for_run
) -> None:
    worker = await start_worker()
    await worker.wait_for_line("worker_started")
    run = await queue_run()
    assert (await wait_for_run(run.id)).state == "done"
    assert await worker.stop() == 0


async def test_failed_attempt_is_retried_by_queue(
    runtime, tenant, queue_run, start_worker, wait_for_run
) -> None:
    run = await queue_run()
    fails_once = """
failed = []
async def fail_once(runtime, run):
    if not failed:
        failed.append(run.id)
        raise ValueError("the first time")
steps["reflect"] = InterruptedStep("reflect", fail_once)
"""
    worker = await start_worker(patch=fails_once)
    done = await wait_for_run(run.id)
    assert (done.state, done.attempt_count, done.error) == ("done", 2, None)
    assert await count_episodes(runtime, tenant) == 1
    assert await worker.stop() == 0


async def test_run_of_dead_foreground_process_is_finished_by_worker(
    runtime, database, tenant, start_worker, wait_for_run
) -> None:
    """`reflections/generate` stores trace and run before it thinks; here it dies thinking."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.foreground_process",
        database.url("hansei_app"),
        str(tenant.id),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert output.endswith(b"AT WORK\n")
    assert process.returncode == -9
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = await session.scalar(select(RunRow).where(RunRow.tenant_id == tenant.id))
    assert run is not None
    worker = await start_worker(lease=1)
    done = await wait_for_run(run.id)
    assert (done.state, done.attempt_count) == ("done", 2)
    assert await count_episodes(runtime, tenant) == 1
    assert await worker.stop() == 0
