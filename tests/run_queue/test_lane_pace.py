"""A flood of short runs of one tenant leaves time for the runs of another one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from memory_api.run_queue.lane_pace import MIN_START_SECONDS, SHARED_SECONDS, LanePace
from memory_api.run_queue.port import Ticket
from memory_api.run_queue.postgres import PostgresRunQueue, TicketSource, WorkerSlots
from tests.conftest import Database
from tests.run_queue.test_fair_dequeue import FILL, owners

A, B = UUID(int=1), UUID(int=2)


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection]:
    await database.server.run("truncate tickets", database.name)
    connection = await asyncpg.connect(database.url("hansei_worker"))
    yield connection
    await connection.close()
    await database.server.run("truncate tickets", database.name)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_worker_is_shared_while_tickets_of_two_tenants_come() -> None:
    clock = Clock()
    pace = LanePace(clock)
    pace.note_taken([A, A])
    assert not pace.is_shared
    pace.note_taken([B])
    assert pace.is_shared
    assert set(pace.paused_lanes()) == {A, B}
    clock.now += MIN_START_SECONDS + 0.001
    assert not pace.paused_lanes()
    pace.note_taken([A])
    clock.now += SHARED_SECONDS - 0.01
    assert not pace.is_shared


async def test_paused_lanes_and_tickets_per_lane(connection: asyncpg.Connection) -> None:
    for lane in (A, B):
        await connection.execute(FILL, lane, 10, timedelta(seconds=-1), "work")
    source = TicketSource(connection, WorkerSlots.for_work(8))
    assert owners([*await source.take([A], 1)]) == {B: 1}
    assert owners([*await source.take([], 1)]) == {A: 1, B: 1}
    assert owners([*await source.take([B])]) == {A: 7}


async def test_flood_is_paced_while_another_tenant_works(
    connection: asyncpg.Connection, database: Database
) -> None:
    await connection.execute(FILL, A, 500, timedelta(seconds=-1), "work")
    started, stop = Counter[UUID](), asyncio.Event()

    async def deliver(ticket: Ticket) -> None:
        started[ticket.tenant_id] += 1

    queue = PostgresRunQueue(database.url("hansei_worker"))
    working = asyncio.create_task(queue.consume(deliver, concurrency=4, stop=stop))
    for _ in range(10):
        await connection.execute(FILL, B, 1, timedelta(seconds=-1), "work")
        await asyncio.sleep(0.1)
    shared_count = started[A]
    assert started[B] >= 8
    assert shared_count <= 4 + 1.5 / MIN_START_SECONDS
    await asyncio.sleep(SHARED_SECONDS)
    async with asyncio.timeout(20):
        while started[A] < 500:
            await asyncio.sleep(0.05)
    stop.set()
    await working
