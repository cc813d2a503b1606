"""Whose ticket is taken next: tenants take turns, whatever each of them has waiting."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job

from memory_api.run_queue.pgqueuer import (
    DELETE_TICKETS,
    NEVER,
    TAKE_TICKETS,
    FairQueries,
    WorkerSlots,
)
from memory_api.run_queue.port import Ticket
from tests.conftest import Database

ALIVE = timedelta(seconds=30)
FILL = """
insert into pgqueuer (priority, entrypoint, payload, execute_after, status)
select 0, 'run', convert_to($1 || '/' || gen_random_uuid(), 'UTF8'), now() + $3::interval, 'queued'
from generate_series(1, $2)
"""


class Queue:
    """The queue as workers see it."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection

    async def put(self, tenant: UUID, count: int, after: float = -1) -> None:
        await self.connection.execute(FILL, str(tenant), count, timedelta(seconds=after))

    def worker(self, seats: WorkerSlots) -> Callable[[], Any]:
        """Takes as a worker of its own would; answers whose tickets it got."""
        queries = FairQueries(AsyncpgDriver(self.connection), slots=seats)
        name = uuid4()

        async def take() -> list[Job]:
            return await queries.dequeue(1, {}, name, None, ALIVE)  # type: ignore[arg-type]

        return take


def owners(jobs: list[Job]) -> Counter[UUID]:
    return Counter(Ticket.decode(job.payload or b"").tenant_id for job in jobs)


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[Queue]:
    await database.server.run("truncate pgqueuer", database.name)
    connection = await asyncpg.connect(database.url("hansei_worker"))
    yield Queue(connection)
    await connection.close()
    await database.server.run("truncate pgqueuer", database.name)


A, B, C = (UUID(int=n) for n in (1, 2, 3))


async def test_one_tenant_leaves_slots_for_others(queue: Queue) -> None:
    await queue.put(A, 100)
    take = queue.worker(WorkerSlots(8))
    assert owners(await take()) == {A: 8}
    assert owners(await take()) == {}
    await queue.put(B, 100)
    assert owners(await take()) == {B: 2}
    assert owners(await take()) == {}


async def test_tenant_with_fewest_running_comes_first(queue: Queue) -> None:
    await queue.put(A, 100)
    await queue.put(B, 1)
    first = queue.worker(WorkerSlots(4))
    assert owners(await first()) == {A: 3, B: 1}
    assert owners(await first()) == {A: 1}
    await queue.put(C, 2)
    await queue.put(B, 1)
    second = queue.worker(WorkerSlots(1))  # one seat a tenant, two in all
    assert owners(await second()) == {C: 1, B: 1}  # A holds four elsewhere
    assert owners(await queue.worker(WorkerSlots(1))()) == {C: 1, A: 1}


async def test_tickets_of_tenant_keep_order(queue: Queue) -> None:
    for after in (-3, -1, -2):
        await queue.put(A, 1, after)
    taken = await queue.worker(WorkerSlots(3))()
    assert [job.execute_after for job in taken] == sorted(job.execute_after for job in taken)
    assert [job.id for job in taken] != sorted(job.id for job in taken)


async def test_started_chains_come_before_new_chains(queue: Queue) -> None:
    """A ticket with the place of one that is gone comes before those that were queued since."""
    await queue.put(A, 20, after=-10)
    await queue.put(A, 1, after=-60)
    taken = await queue.worker(WorkerSlots(1))()
    assert [job.id for job in taken] == [max(job.id for job in taken)]
    assert taken[0].id > await queue.connection.fetchval("select min(id) from pgqueuer")


async def test_ticket_not_due_waits_without_blocking_others(queue: Queue) -> None:
    await queue.put(A, 50, after=60)
    take = queue.worker(WorkerSlots(4))
    assert owners(await take()) == {}
    await queue.put(A, 1)
    await queue.put(B, 1)
    assert owners(await take()) == {A: 1, B: 1}


async def test_tickets_of_dead_worker_are_queued_again(queue: Queue) -> None:
    await queue.put(A, 4)
    assert owners(await queue.worker(WorkerSlots(4))()) == {A: 4}
    await queue.connection.execute("update pgqueuer set heartbeat = now() - interval '1 minute'")
    await queue.put(B, 1)
    take = queue.worker(WorkerSlots(4))
    assert owners(await take()) == {B: 1}
    assert owners(await take()) == {A: 4}


async def test_two_workers_never_have_the_same_ticket(queue: Queue, database: Database) -> None:
    await queue.put(A, 30)
    await queue.put(B, 1)
    other = await asyncpg.connect(database.url("hansei_worker"))
    held = other.transaction()
    await held.start()
    first = await Queue(other).worker(WorkerSlots(4))()  # not committed: its rows are locked
    second = await queue.worker(WorkerSlots(4))()
    await held.commit()
    await other.close()
    assert owners(first) == {A: 3, B: 1}
    assert owners(second) == {A: 3}
    assert not {job.id for job in first} & {job.id for job in second}


async def test_worker_knows_when_next_ticket_is_due(queue: Queue) -> None:
    queries = FairQueries(AsyncpgDriver(queue.connection), slots=WorkerSlots(2))

    async def seconds_after_poll() -> tuple[int, float]:
        jobs = await queries.dequeue(1, {}, uuid4(), None, ALIVE)  # type: ignore[arg-type]
        return len(jobs), (await queries.next_deferred_eta([])).total_seconds()

    assert await seconds_after_poll() == (0, NEVER.total_seconds())
    await queue.put(A, 3, after=90)
    await queue.put(B, 1, after=60)
    taken, seconds = await seconds_after_poll()
    assert taken == 0
    assert 55 < seconds <= 60
    await queue.put(B, 1)
    taken, seconds = await seconds_after_poll()
    assert taken == 1
    assert 85 < seconds <= 90  # of the other tenant


async def test_done_tickets_are_deleted_together(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.put(A, 4)
    driver = AsyncpgDriver(queue.connection)
    queries = FairQueries(driver, slots=WorkerSlots(4))
    jobs = await queries.dequeue(1, {}, uuid4(), None, ALIVE)  # type: ignore[arg-type]
    statements: list[Any] = []
    execute = driver.execute

    async def watch(statement: str, *parameters: Any) -> str:
        statements.append(statement)
        return await execute(statement, *parameters)

    monkeypatch.setattr(driver, "execute", watch)
    results = [(job, "exception" if job is jobs[0] else "successful", None) for job in jobs]
    await asyncio.gather(*(queries.log_jobs([result]) for result in results))
    assert statements == [DELETE_TICKETS]
    assert await queue.connection.fetchval("select array_agg(id) from pgqueuer") == [jobs[0].id]


async def plan_of(connection: Any, seats: int) -> list[dict[str, Any]]:
    """The nodes of the plan of take.sql that read the queue, as they were run."""
    async with connection.transaction():
        told = await connection.fetchval(
            f"explain (analyze, format json) {TAKE_TICKETS}", uuid4(), seats + 1, seats, ALIVE
        )
    found: list[dict[str, Any]] = []
    rest = [json.loads(told)[0]["Plan"]]
    while rest:
        node = rest.pop()
        rest += node.get("Plans", [])
        if node.get("Relation Name") == "pgqueuer":
            found.append(node)
    return found


@pytest.mark.parametrize("analyzed", [False, True])
async def test_dequeue_uses_indexes_with_ten_thousand_waiting(
    queue: Queue, database: Database, analyzed: bool
) -> None:
    await queue.put(A, 10_000)
    for n in range(200):
        await queue.put(UUID(int=1000 + n), 3)
    if analyzed:
        await database.server.run("analyze pgqueuer", database.name)
    nodes = await plan_of(queue.connection, 8)
    assert {node["Node Type"] for node in nodes} <= {
        *("Index Scan", "Index Only Scan", "Bitmap Heap Scan", "ModifyTable"),
    }
    looked_at = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    read = sum(node.get(name, 0) * node["Actual Loops"] for node in nodes for name in looked_at)
    assert read < 400, nodes  # heads of 201 lanes and what is taken: never the 10,000
