"""A chain's place in line: what was begun is ended before more is begun; and the one ticket that
leads a worker through its steps.
"""

from __future__ import annotations

import asyncio

import asyncpg

from memory_api.run_queue.postgres import TicketSource, WorkerSlots
from memory_api.runs.chain import (
    EVALUATE,
    REFLECT,
    enqueue_learning_runs,
    enqueue_next_step,
    next_run_id,
)
from memory_api.runs.lifecycle import NextStep
from memory_api.runs.queries import get_run
from memory_api.runtime import Runtime
from memory_api.traces.schemas import CreateTraceRequest
from memory_api.traces.storage import prepare_trace, store_trace
from memory_api.worker import RUN_STEPS, process_ticket
from tests.conftest import Database, TestTenant
from tests.support.steps import InterruptedStep
from tests.support.tickets import waiting_tickets
from tests.support.worker_processes import TRACE


async def test_next_step_comes_before_later_chains_of_batch(
    runtime: Runtime, tenant: TestTenant, database: Database
) -> None:
    """Three traces sent as one batch: one transaction, one `now()`."""
    await database.server.run("truncate tickets", database.name)
    run_ids = {}
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for _ in range(3):
            body = CreateTraceRequest.model_validate(TRACE)
            stored = await store_trace(session, await prepare_trace(body, tenant.id, "default"))
            projects = {stored.trace.id: "default"}
            run_ids |= await enqueue_learning_runs(
                runtime.queue, session, projects, reflect="always", max_attempts=3
            )
            await asyncio.sleep(0.002)  # positions are in milliseconds
    first, second, third = run_ids.values()
    connection = await asyncpg.connect(database.url("hansei_worker"))

    async def take_one():
        (taken,) = await TicketSource(connection, WorkerSlots(1, 1)).take()
        return taken.ticket.run_id

    assert await take_one() == first
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = await get_run(session, first)
        assert run is not None
        step = await enqueue_next_step(runtime.queue, session, run, NextStep(REFLECT, {}))
    assert [await take_one() for _ in range(3)] == [step.id, second, third]
    await connection.close()


async def test_one_ticket_leads_through_the_steps_of_a_chain(
    runtime: Runtime, tenant: TestTenant, queue_run, read_run
) -> None:
    run = await queue_run(EVALUATE)
    (ticket,) = await waiting_tickets(runtime, tenant.id)
    assert await process_ticket(runtime, ticket, may_continue=lambda: True) is None
    reflected = await read_run(next_run_id(await read_run(run.id)))
    assert (reflected.kind, reflected.state, reflected.attempt_count) == (REFLECT, "done", 1)
    assert reflected.parent_id == run.id
    assert await waiting_tickets(runtime, tenant.id) == []


async def test_ticket_of_a_done_run_leads_to_the_step_that_failed(
    runtime: Runtime, tenant: TestTenant, queue_run, read_run
) -> None:
    run = await queue_run(EVALUATE)
    (ticket,) = await waiting_tickets(runtime, tenant.id)

    async def fail(_runtime: Runtime, _run: object) -> None:
        raise ValueError

    steps = {**RUN_STEPS, REFLECT: InterruptedStep(REFLECT, fail)}
    delay = await process_ticket(runtime, ticket, steps, may_continue=lambda: True)
    assert delay is not None
    failed_id = next_run_id(await read_run(run.id))
    assert (await read_run(failed_id)).state == "queued"
    assert await process_ticket(runtime, ticket) is None
    done = await read_run(failed_id)
    assert (done.state, done.attempt_count) == ("done", 2)
    assert (await read_run(run.id)).attempt_count == 1
    assert await process_ticket(runtime, ticket) is None  # delivered once more: all is done
    assert (await read_run(failed_id)).attempt_count == 2
