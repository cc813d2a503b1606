"""A chain's place in line: what was begun is ended before more is begun."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
from pgqueuer.db import AsyncpgDriver

from apps.memory_api.jobs.chain import REFLECT, begin, first_run, follow
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.jobs.turns import Seats, TurnQueries
from apps.memory_api.runtime import Runtime
from apps.memory_api.traces.ingest import store_trace
from apps.memory_api.traces.schemas import TraceIn
from tests.conftest import Database, TestTenant
from tests.jobs.conftest import TRACE


async def test_a_step_stands_before_chains_of_the_same_batch_that_began_later(
    runtime: Runtime, tenant: TestTenant, database: Database
) -> None:
    """Three traces sent as one batch: one transaction, one `now()`."""
    await database.server.run("truncate pgqueuer", database.name)
    chains = []
    async with runtime.sessions.tenant(tenant.id) as session:
        for _ in range(3):
            stored = await store_trace(session, TraceIn.model_validate(TRACE), "default")
            about = {"project_id": "default", "trace_id": stored.trace.id}
            chains.append(first_run(session, **about, reflect="always", max_attempts=3))
            await asyncio.sleep(0.002)
        await begin(runtime.queue, session, *chains)
    connection = await asyncpg.connect(database.url("hansei_worker"))
    queries = TurnQueries(AsyncpgDriver(connection), seats=Seats(1))

    async def take_one():
        (job,) = await queries.dequeue(1, {}, uuid4(), None, runtime.lease)  # type: ignore[arg-type]
        return Ticket.decode(job.payload or b"").run_id

    assert await take_one() == chains[0].id
    async with runtime.sessions.tenant(tenant.id) as session:
        step = await follow(runtime.queue, session, chains[0], REFLECT, {})
    assert [await take_one() for _ in range(3)] == [step.id, chains[1].id, chains[2].id]
    await connection.close()
