"""Real workers between two tenants: the slow work of one holds nobody else up."""

from __future__ import annotations

from uuid import UUID

from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.chain import REFLECT
from memory_api.runs.queries import get_run, list_runs, select_runs
from memory_api.runtime import Runtime
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import prepare_trace, store_trace
from tests.support.worker_processes import TRACE

SLOW_FOR_ONE = """
from uuid import UUID
async def slow(runtime, run):
    if run.tenant_id == UUID("{tenant}"):
        print("AT WORK", flush=True)
        await asyncio.sleep(600)
steps["reflect"] = InterruptedStep("reflect", slow)
"""


async def queue_runs(runtime: Runtime, tenant_id: UUID, count: int) -> list[UUID]:
    async with runtime.sessions.for_tenant(tenant_id) as session:
        body = CreateTraceRequest.model_validate(TRACE)
        trace = (await store_trace(session, await prepare_trace(body, tenant_id, "default"))).trace
        made = [
            lifecycle.new_run(session, REFLECT, project_id="default", trace_id=trace.id)
            for _ in range(count)
        ]
        await session.flush()
        await runtime.queue.enqueue(session, [Ticket(tenant_id, run.id) for run in made])
        return [run.id for run in made]


async def test_slow_tenant_leaves_slot_for_other_tenant(runtime, make_tenant, start_worker) -> None:
    busy, other = await make_tenant(), await make_tenant()
    await queue_runs(runtime, busy.id, 30)
    patch = SLOW_FOR_ONE.format(tenant=busy.id)
    workers = [await start_worker(patch=patch) for _ in range(2)]
    for worker in workers:
        await worker.wait_for_line("AT WORK")
    mine = await queue_runs(runtime, other.id, 6)
    for run_id in mine:
        state = None
        while state != "done":
            async with runtime.sessions.for_tenant(other.id) as session:
                run = await get_run(session, run_id)
                state = run.state if run else None
    async with runtime.sessions.for_tenant(busy.id) as session:
        states = [run.state for run in await list_runs(session, select_runs(session), limit=100)]
    assert states.count("running") == 8  # four seats in each of two workers, and not one more
    assert states.count("done") == 0
