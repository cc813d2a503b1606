"""A worker is told of a change of the queue once, however many changes follow before it polls."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from memory_api.core.ids import new_id
from memory_api.run_queue import pgqueuer
from memory_api.run_queue.pgqueuer import FairQueries, PgQueuerRunQueue
from memory_api.run_queue.port import Ticket
from tests.conftest import Database

CHANGES = 500
"""More than a worker polls in ten seconds."""
NOTIFY = """
select pg_notify('ch_pgqueuer', json_build_object(
    'channel', 'ch_pgqueuer', 'operation', 'insert', 'sent_at', now(), 'table', 'pgqueuer',
    'type', 'table_changed_event')::text)
"""


async def test_one_poll_handles_all_changes_before_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await database.server.run("truncate pgqueuer", database.name)
    done, stop, polls = asyncio.Event(), asyncio.Event(), list[None]()
    dequeue = FairQueries.dequeue

    async def count(self: FairQueries, **options: Any) -> Any:
        polls.append(None)
        return await dequeue(self, **options)

    async def deliver(_ticket: Ticket) -> None:
        done.set()

    monkeypatch.setattr(FairQueries, "dequeue", count)
    url = database.url("hansei_worker")
    connection = await asyncpg.connect(url)
    queue = PgQueuerRunQueue(url)
    worker = asyncio.create_task(queue.consume(deliver, concurrency=4, stop=stop, schedules={}))
    try:
        async with asyncio.timeout(10):
            while not polls:
                await asyncio.sleep(0.02)
        for _ in range(CHANGES):  # of other workers' tickets
            await connection.execute(NOTIFY)
        await asyncio.sleep(0.5)
        polls.clear()
        await asyncio.sleep(1)
        assert len(polls) <= 1
        ticket = Ticket(new_id(), new_id())
        await connection.execute(
            pgqueuer.ENQUEUE, [ticket.encode()], [ticket.enqueued_at], None, None
        )
        async with asyncio.timeout(3):  # a poll without a change follows 5 s after the last one
            await done.wait()
    finally:
        stop.set()
        await worker
        await connection.close()
