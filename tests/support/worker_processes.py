"""A trace with its run, and real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import REFLECT
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import prepare_trace, store_trace
from tests.conftest import Database, TestTenant
from tests.support.forked_processes import start_program

TRACE = {
    "outcome": "failure",
    "task_description": "Count the rows",
    "events": [
        {"event_type": "tool_call", "tool_name": "sql", "content": "select count(*)"},
        {"event_type": "error_event", "tool_name": "sql", "content": "relation is missing"},
    ],
}

PROGRAM = """
import asyncio, sys
from memory_api.core.settings import Settings
from memory_api.core.telemetry import configure_logging
from memory_api import worker
from memory_api.bootstrap import open_runtime
from memory_api.runs.standstill import watch_loop
from tests.support.steps import InterruptedStep
steps = dict(worker.RUN_STEPS)
{patch}
async def main():
    stop = asyncio.Event()
    import signal
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = Settings(_env_file=None, lease_seconds={lease}, max_attempts=3)
    async with open_runtime(settings, sys.argv[1], background=True) as runtime:
        with watch_loop(sys.argv[1], max_seconds={max_standstill}):
            await worker.run_worker(runtime, stop, steps)
configure_logging("json", "info")
asyncio.run(main())
"""
"""A worker as `hansei worker` runs it; `patch` is code that replaces entries of `steps`."""

SLOW = """
async def slow(runtime, run):
    print("AT WORK", flush=True)
    await asyncio.sleep({seconds})
steps["reflect"] = InterruptedStep("reflect", slow)
"""
STANDING = """
import time
async def standing(runtime, run):
    print("AT WORK", flush=True)
    if run.max_attempts != {attempts}:
        await asyncio.sleep(600)
    await asyncio.sleep(0.5)
    {standstill}
steps["reflect"] = InterruptedStep("reflect", standing)
"""
"""A run with this number of attempts holds the event loop."""
DEADLY = """
import os, signal
async def deadly(runtime, run):
    os.kill(os.getpid(), signal.SIGKILL)
steps["reflect"] = InterruptedStep("reflect", deadly)
"""


@pytest.fixture
def queue_run(runtime: Runtime, tenant: TestTenant) -> Callable[..., Awaitable[RunRow]]:
    """Store a trace with a queued run, its ticket in the queue."""

    async def make(kind: str = REFLECT, **more: Any) -> RunRow:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            body = CreateTraceRequest.model_validate(TRACE)
            stored = await store_trace(session, await prepare_trace(body, tenant.id, "default"))
            run = lifecycle.new_run(
                session, kind, project_id="default", trace_id=stored.trace.id, **more
            )
            await session.flush()
            await runtime.queue.enqueue(session, [Ticket(tenant.id, run.id)])
        return run

    return make


@pytest.fixture
def read_run(runtime: Runtime, tenant: TestTenant) -> Callable[[UUID], Awaitable[RunRow]]:
    """A run as it is now."""

    async def read(run_id: UUID) -> RunRow:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            run = await get_run(session, run_id)
            assert run is not None
            return run

    return read


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, program: str, url: str) -> None:
        self.process, self._output = start_program(program, url)
        self._stdout = os.fdopen(os.dup(self._output.fileno()), encoding="utf-8")
        self.lines: list[str] = []

    async def wait_for_line(self, what: str) -> None:
        """Wait until the worker prints a line with `what`."""
        while what not in (self.lines[-1] if self.lines else ""):
            line = await asyncio.to_thread(self._stdout.readline)
            assert line, f"the worker left: {self.lines}"
            self.lines.append(line)

    async def wait(self) -> int:
        """Wait until the worker ends."""
        self.lines += await asyncio.to_thread(self._stdout.readlines)
        return await asyncio.to_thread(self.process.wait)

    async def kill(self) -> None:
        self.process.kill()
        await self.wait()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.wait()

    def close(self) -> None:
        self._stdout.close()
        self._output.close()


@pytest.fixture
async def start_worker(
    database: Database,
) -> AsyncIterator[Callable[..., Awaitable[WorkerProcess]]]:
    """Starts workers. What earlier tests left in the queue is not theirs to do."""
    await database.server.run("truncate tickets", database.name)
    started: list[WorkerProcess] = []

    async def start(
        *, lease: float = 30, max_standstill: float = 15, patch: str = ""
    ) -> WorkerProcess:
        program = PROGRAM.format(lease=lease, max_standstill=max_standstill, patch=patch)
        worker = WorkerProcess(program, database.url("hansei_worker"))
        started.append(worker)
        return worker

    yield start
    for worker in started:
        if worker.process.returncode is None:
            await worker.kill()
        worker.close()


@pytest.fixture
def wait_for_run(read_run: Callable[[UUID], Awaitable[RunRow]]) -> Callable[..., Awaitable[RunRow]]:
    """Wait until a run is as wanted."""

    async def wait(run_id: UUID, *states: str) -> RunRow:
        while (run := await read_run(run_id)).state not in (states or ("done", "dead")):
            await asyncio.sleep(0.05)
        return run

    return wait
