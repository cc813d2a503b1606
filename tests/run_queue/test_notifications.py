"""Notifications only wake: a worker reads nothing from them, and works without any."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from memory_api.core.after_commit import TICKETS_CHANNEL, channel_name
from memory_api.core.ids import new_id
from memory_api.run_queue import postgres
from memory_api.run_queue.port import Ticket
from memory_api.run_queue.postgres import PostgresRunQueue, TicketSource
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.tickets import enqueue_tickets

FORGED = (
    json.dumps(
        {"type": "cancellation_event", "ids": list(range(1, 1_200)), "channel": "ch_pgqueuer"}
    ),
    json.dumps({"type": "table_changed_event", "operation": "delete"}),
    "not JSON \x01",
    "[" * 4_000,
    "",
)


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[asyncpg.Connection[Any]]:
    await database.server.run("truncate tickets", database.name)
    connection = await asyncpg.connect(database.url("hansei_worker"))
    yield connection
    await connection.close()


@asynccontextmanager
async def worker_of(database: Database, deliver: Any, concurrency: int = 4) -> AsyncIterator[None]:
    stop = asyncio.Event()
    queue = PostgresRunQueue(database.url("hansei_worker"))
    working = asyncio.create_task(queue.consume(deliver, concurrency=concurrency, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await working


async def test_forged_notifications_cancel_nothing_and_hold_no_slot(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    """A login that knows the channel floods it while tickets are delivered: all are delivered once,
    without a delay, and the worker ends with no slot taken.
    """
    channel = await channel_name(connection, TICKETS_CHANNEL)
    done, flooding = list[Ticket](), True

    async def deliver(ticket: Ticket) -> None:
        await asyncio.sleep(0.05)
        done.append(ticket)

    async def flood() -> None:
        attacker = await asyncpg.connect(database.url("hansei_worker"))
        while flooding:
            for name in (channel, "ch_pgqueuer"):
                for payload in FORGED:
                    await attacker.execute("select pg_notify($1, $2)", name, payload)
            await asyncio.sleep(0.02)
        await attacker.close()

    attack = asyncio.create_task(flood())
    tickets = [Ticket(uuid4(), new_id()) for _ in range(12)]
    async with worker_of(database, deliver):
        await enqueue_tickets(connection, *tickets)
        async with asyncio.timeout(10):
            while len(done) < len(tickets):
                await asyncio.sleep(0.02)
        flooding = False
        await attack
    assert sorted(t.run_id for t in done) == sorted(t.run_id for t in tickets)
    assert await connection.fetchval("select count(*) from tickets") == 0


async def test_one_poll_handles_all_changes_before_it(
    database: Database, connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    polls, take = list[float](), TicketSource.take

    async def count(self: TicketSource, *options: Any) -> Any:
        if self.kind == "work":
            polls.append(time.monotonic())
        return await take(self, *options)

    async def deliver(_ticket: Ticket) -> None: ...

    monkeypatch.setattr(TicketSource, "take", count)
    channel = await channel_name(connection, TICKETS_CHANNEL)
    async with worker_of(database, deliver):
        started = time.monotonic()
        for _ in range(500):
            await connection.execute("select pg_notify($1, gen_random_uuid()::text)", channel)
        took = time.monotonic() - started
        await asyncio.sleep(0.1)
        assert len(polls) <= 3 + took / postgres.MIN_POLL_INTERVAL_SECONDS
        polls.clear()
        await asyncio.sleep(1)
        assert len(polls) <= 2  # an idle worker polls once a second


async def test_worker_without_notifications_polls(
    database: Database, connection: asyncpg.Connection[Any]
) -> None:
    done = asyncio.Event()

    async def deliver(_ticket: Ticket) -> None:
        done.set()

    async with worker_of(database, deliver):
        await asyncio.sleep(0.2)
        await enqueue_tickets(connection, Ticket(uuid4(), new_id()))
        async with asyncio.timeout(2 * postgres.IDLE_POLL_SECONDS):
            await done.wait()


async def test_commit_wakes_a_worker(
    database: Database,
    connection: asyncpg.Connection[Any],
    runtime: Runtime,
    tenant: TestTenant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "IDLE_POLL_SECONDS", 30.0)
    done = asyncio.Event()

    async def deliver(_ticket: Ticket) -> None:
        done.set()

    async with worker_of(database, deliver):
        await asyncio.sleep(0.5)
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await runtime.queue.enqueue(session, [Ticket(tenant.id, new_id())])
        async with asyncio.timeout(2):
            await done.wait()


async def test_write_succeeds_when_notify_fails(
    runtime: Runtime, tenant: TestTenant, database: Database, connection: asyncpg.Connection[Any]
) -> None:
    """As when PostgreSQL's queue of notifications is full: each call of `pg_notify` raises, in the
    transaction and after it, and the commit counts.
    """
    notify, roles = "execute on function pg_notify", "hansei_owner, hansei_app, hansei_worker"
    await database.server.run(f"revoke {notify} from public, {roles}", database.name)
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("select pg_notify('x', '')")
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await runtime.queue.enqueue(session, [Ticket(tenant.id, new_id())])
        await runtime.sessions.notifier.close()
    finally:
        await database.server.run(f"grant {notify} to {roles}", database.name)
    assert await connection.fetchval("select count(*) from tickets") == 1
