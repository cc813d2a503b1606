"""Real worker processes on the test database: killed, poisoned, told to leave."""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import func, select

from apps.memory_api.jobs.tables import Run
from apps.memory_api.memory.tables import Memory
from tests.conftest import ROOT
from tests.jobs.conftest import DEADLY, SLOW


async def count_episodes(runtime, tenant) -> int | None:
    async with runtime.sessions.tenant(tenant.id) as session:
        return await session.scalar(
            select(func.count()).where(Memory.tenant_id == tenant.id, Memory.kind == "episode")
        )


async def test_a_killed_workers_run_is_done_by_another_and_counts_once(
    runtime, tenant, queued, start_worker, settled, look
) -> None:
    run = await queued()
    first = await start_worker(lease=1.5, patch=SLOW.format(seconds=600))
    await first.said("AT WORK")
    assert (await look(run.id)).state == "running"
    await first.kill()
    second = await start_worker(lease=1.5)
    done = await settled(run.id)
    assert (done.state, done.attempts) == ("done", 2)
    assert await count_episodes(runtime, tenant) == 1
    assert await second.leave() == 0


async def test_a_poisoned_run_ends_dead_and_takes_no_other_along(
    tenant, queued, start_worker, settled, look
) -> None:
    """A run that kills every process that touches it is counted, and buried when it had its
    chances."""
    poison = await queued(max_attempts=2)
    for attempt in (1, 2):
        victim = await start_worker(lease=0.6, patch=DEADLY)
        await victim.process.communicate()
        assert victim.process.returncode == -9
        now = await look(poison.id)
        assert (now.state, now.attempts) == ("running", attempt)
    healthy = await queued()
    survivor = await start_worker(lease=0.6)
    assert (await settled(healthy.id)).state == "done"
    dead = await settled(poison.id)
    assert (dead.state, dead.attempts, dead.lease_owner) == ("dead", 2, None)
    assert dead.error["type"] == "Lost"
    assert await survivor.leave() == 0


async def test_told_to_leave_it_finishes_what_it_holds(tenant, queued, start_worker, look) -> None:
    run = await queued()
    worker = await start_worker(patch=SLOW.format(seconds=0.5))
    await worker.said("AT WORK")
    assert await worker.leave() == 0
    done = await look(run.id)
    assert (done.state, done.attempts, done.lease_owner) == ("done", 1, None)


async def test_an_idle_worker_leaves_at_once_and_an_awake_one_hears_of_new_work(
    tenant, queued, start_worker, settled
) -> None:
    worker = await start_worker()
    await worker.said("worker_started")
    run = await queued()
    assert (await settled(run.id)).state == "done"
    assert await worker.leave() == 0


async def test_a_failed_attempt_is_tried_again_by_the_queue(
    runtime, tenant, queued, start_worker, settled
) -> None:
    run = await queued()
    fails_once = """
think = worker.HANDLERS["reflect"]
failed = []
async def fail_once(runtime, run):
    if not failed:
        failed.append(run.id)
        raise ValueError("the first time")
    return await think(runtime, run)
worker.HANDLERS["reflect"] = fail_once
"""
    worker = await start_worker(patch=fails_once)
    done = await settled(run.id)
    assert (done.state, done.attempts, done.error) == ("done", 2, None)
    assert await count_episodes(runtime, tenant) == 1
    assert await worker.leave() == 0


async def test_a_run_of_a_dead_foreground_process_is_finished_by_a_worker(
    runtime, database, tenant, start_worker, settled
) -> None:
    """`reflections/generate` stores trace and run before it thinks; here it dies thinking."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.jobs.foreground",
        database.url("hansei_app"),
        str(tenant.id),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert await process.communicate() == (b"AT WORK\n", None)
    assert process.returncode == -9
    async with runtime.sessions.tenant(tenant.id) as session:
        run = await session.scalar(select(Run).where(Run.tenant_id == tenant.id))
    assert run is not None
    worker = await start_worker(lease=1)
    done = await settled(run.id)
    assert (done.state, done.attempts) == ("done", 2)
    assert await count_episodes(runtime, tenant) == 1
    assert await worker.leave() == 0
