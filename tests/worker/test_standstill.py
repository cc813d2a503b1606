"""A run that holds the event loop of its worker: the worker ends, and so does the run."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.worker_processes import STANDING

LOOP = STANDING.format(attempts=7, standstill="while True: pass")
IN_CHILD = """
import asyncio
async def endless():
    await asyncio.sleep(0.2)
    while True: pass
""" + STANDING.format(attempts=7, standstill="await asyncio.gather(asyncio.sleep(0), endless())")
IN_C = STANDING.format(attempts=7, standstill="sum(range(10**13))")


@pytest.mark.parametrize(
    ("patch", "function"), [(LOOP, "standing"), (IN_CHILD, "endless")], ids=["own", "child"]
)
async def test_run_that_stands_still_ends_and_its_neighbors_lose_no_attempt(
    queue_run, start_worker, read_run, wait_for_run, patch: str, function: str
) -> None:
    """Also if the run holds the loop in a task that it started."""
    neighbor, standing = await queue_run(), await queue_run(max_attempts=7)
    worker = await start_worker(max_standstill=2, patch=patch)
    assert await asyncio.wait_for(worker.wait(), 60) == 1
    (line,) = [line for line in worker.lines if "event_loop_blocked" in line]
    assert str(standing.id) in line
    assert f"in {function}" in line
    waiting = await read_run(neighbor.id)
    assert (waiting.state, waiting.attempt_count) == ("queued", 0)
    survivor = await start_worker()
    done = await wait_for_run(neighbor.id)
    assert (done.state, done.attempt_count) == ("done", 1)
    dead = await wait_for_run(standing.id)
    assert (dead.state, dead.attempt_count, dead.error["code"]) == ("dead", 7, "standstill")
    assert await survivor.stop() == 0


async def test_worker_ends_also_while_code_in_c_keeps_the_global_lock(
    queue_run, start_worker, read_run
) -> None:
    standing = await queue_run(max_attempts=7)
    worker = await start_worker(max_standstill=1, patch=IN_C)
    assert await asyncio.wait_for(worker.wait(), 60) == 1
    assert (await read_run(standing.id)).attempt_count == 1
