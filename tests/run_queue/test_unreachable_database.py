"""A worker whose own connections fail leaves the tickets to a worker whose connections work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from memory_api.core.db_errors import DatabaseUnavailable
from memory_api.core.ids import new_id
from memory_api.run_queue import postgres
from memory_api.run_queue.port import Ticket, TicketHandler
from memory_api.run_queue.postgres import PostgresRunQueue
from tests.conftest import Database
from tests.support.tickets import enqueue_tickets

TICKETS = 6
PAUSE = 10.0
"""Seconds. Long enough for the other worker to take all tickets; the test waits for its end."""


async def test_worker_without_database_leaves_tickets_to_others(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "REDELIVERY_DELAY", timedelta(seconds=0.1))
    monkeypatch.setattr(postgres, "UNREACHABLE_PAUSE_SECONDS", PAUSE)
    await database.server.run("truncate tickets", database.name)
    url = database.url("hansei_worker")
    tried, done, stop = list[Ticket](), list[Ticket](), asyncio.Event()

    async def fail(ticket: Ticket) -> None:
        tried.append(ticket)
        raise DatabaseUnavailable

    async def succeed(ticket: Ticket) -> None:
        done.append(ticket)

    def start(deliver: TicketHandler) -> asyncio.Task[None]:
        consuming = PostgresRunQueue(url).consume(deliver, concurrency=4, stop=stop)
        return asyncio.create_task(consuming)

    async def enqueue(count: int) -> set[UUID]:
        tickets = [Ticket(new_id(), new_id()) for _ in range(count)]
        await enqueue_tickets(connection, *tickets)
        return {ticket.run_id for ticket in tickets}

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.02)

    connection = await asyncpg.connect(url)
    workers = [start(fail)]
    try:
        first = await enqueue(1)
        await until(lambda: bool(tried))
        await asyncio.sleep(1)  # a poll that has begun meanwhile ends
        later = await enqueue(TICKETS)  # wakes every worker that takes tickets
        await asyncio.sleep(1)
        workers.append(start(succeed))
        await until(lambda: len(done) > TICKETS)
    finally:
        stop.set()
        await asyncio.gather(*workers)
        await connection.close()
    assert [ticket.run_id for ticket in tried] == list(first)
    assert {ticket.run_id for ticket in done} == first | later
