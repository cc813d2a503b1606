"""Whose ticket is taken next: tenants take turns, whatever each of them has waiting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from memory_api.run_queue.port import SlotKind
from memory_api.run_queue.postgres import (
    DELIVERY_SLOTS,
    DOCUMENT_SLOTS,
    TAKE_TICKETS,
    TakenTicket,
    TicketSource,
    WorkerSlots,
)
from tests.conftest import Database

ALIVE = timedelta(seconds=30)
FILL = """
insert into tickets (lane, run_id, due_at, slots)
select $1, gen_random_uuid(), now() + $3::interval, $4 from generate_series(1, $2)
"""
slots = WorkerSlots.for_work


class Queue:
    """The queue as workers see it."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self.connection = connection

    async def put(
        self, tenant: UUID, count: int, after: float = -1, kind: SlotKind = "work"
    ) -> None:
        await self.connection.execute(FILL, tenant, count, timedelta(seconds=after), kind)

    def worker(self, seats: WorkerSlots, kind: SlotKind = "work") -> Callable[[], Any]:
        """Takes as a worker of its own would; answers whose tickets it got."""
        return TicketSource(self.connection, seats, kind, ALIVE).take


def owners(taken: list[TakenTicket]) -> Counter[UUID]:
    return Counter(each.ticket.tenant_id for each in taken)


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[Queue]:
    await database.server.run("truncate tickets", database.name)
    connection = await asyncpg.connect(database.url("hansei_worker"))
    yield Queue(connection)
    await connection.close()
    await database.server.run("truncate tickets", database.name)


A, B, C = (UUID(int=n) for n in (1, 2, 3))


async def test_one_tenant_leaves_slots_for_others(queue: Queue) -> None:
    await queue.put(A, 100)
    take = queue.worker(slots(8))
    assert owners(await take()) == {A: 8}
    assert owners(await take()) == {}
    await queue.put(B, 100)
    assert owners(await take()) == {B: 2}
    assert owners(await take()) == {}


async def test_tenant_with_fewest_running_comes_first(queue: Queue) -> None:
    await queue.put(A, 100)
    await queue.put(B, 1)
    first = queue.worker(slots(4))
    assert owners(await first()) == {A: 3, B: 1}
    assert owners(await first()) == {A: 1}
    await queue.put(C, 2)
    await queue.put(B, 1)
    second = queue.worker(slots(1))  # one seat a tenant, two in all
    assert owners(await second()) == {C: 1, B: 1}  # A holds four elsewhere
    assert owners(await queue.worker(slots(1))()) == {C: 1, A: 1}


async def test_tickets_of_tenant_keep_order(queue: Queue) -> None:
    for after in (-3, -1, -2):
        await queue.put(A, 1, after)
    taken = await queue.worker(slots(3))()
    due = await queue.connection.fetch("select id from tickets order by due_at")
    assert [each.id for each in taken] == [row["id"] for row in due]
    assert [each.id for each in taken] != sorted(each.id for each in taken)


async def test_started_chains_come_before_new_chains(queue: Queue) -> None:
    """A ticket with the place of one that is gone comes before those that were queued since."""
    await queue.put(A, 20, after=-10)
    await queue.put(A, 1, after=-60)
    taken = await queue.worker(slots(1))()
    assert len(taken) == 1
    assert taken[0].id > await queue.connection.fetchval("select min(id) from tickets")


async def test_ticket_not_due_waits_without_blocking_others(queue: Queue) -> None:
    await queue.put(A, 50, after=60)
    take = queue.worker(slots(4))
    assert owners(await take()) == {}
    await queue.put(A, 1)
    await queue.put(B, 1)
    assert owners(await take()) == {A: 1, B: 1}


async def test_tickets_of_dead_worker_are_queued_again(queue: Queue) -> None:
    await queue.put(A, 4)
    assert owners(await queue.worker(slots(4))()) == {A: 4}
    await queue.connection.execute("update tickets set heartbeat_at = now() - interval '1 minute'")
    await queue.put(B, 1)
    take = queue.worker(slots(4))
    assert owners(await take()) == {B: 1}
    assert owners(await take()) == {A: 4}


async def test_two_workers_never_have_the_same_ticket(queue: Queue, database: Database) -> None:
    await queue.put(A, 30)
    await queue.put(B, 1)
    other = await asyncpg.connect(database.url("hansei_worker"))
    held = other.transaction()
    await held.start()
    first = await Queue(other).worker(slots(4))()  # not committed: its rows are locked
    second = await queue.worker(slots(4))()
    await held.commit()
    await other.close()
    assert owners(first) == {A: 3, B: 1}
    assert owners(second) == {A: 3}
    assert not {each.id for each in first} & {each.id for each in second}


async def test_worker_knows_when_next_ticket_is_due(queue: Queue) -> None:
    source = TicketSource(queue.connection, slots(2))

    async def seconds_after_poll() -> tuple[int, float | None]:
        return len(await source.take()), source.next_due_in

    assert await seconds_after_poll() == (0, None)
    await queue.put(A, 3, after=90)
    await queue.put(B, 1, after=60)
    taken, seconds = await seconds_after_poll()
    assert taken == 0
    assert seconds is not None
    assert 55 < seconds <= 60
    await queue.put(B, 1)
    taken, seconds = await seconds_after_poll()
    assert taken == 1
    assert seconds is not None
    assert 85 < seconds <= 90  # of the other tenant


async def test_deliveries_and_documents_have_slots_of_their_own(queue: Queue) -> None:
    for tenant in (A, B):
        await queue.put(tenant, 100, kind="delivery")
        await queue.put(tenant, 100, kind="document")
    await queue.put(C, 1)
    work, deliveries = queue.worker(slots(4)), queue.worker(DELIVERY_SLOTS, "delivery")
    documents = queue.worker(DOCUMENT_SLOTS, "document")
    assert sorted(owners(await documents()).values()) == [1, 2]
    assert owners(await documents()) == {}
    assert owners(await deliveries()) == {A: 2, B: 2}
    assert owners(await deliveries()) == {}
    assert owners(await work()) == {C: 1}


async def test_returned_ticket_is_due_after_its_delay(queue: Queue) -> None:
    await queue.put(A, 2)
    source = TicketSource(queue.connection, slots(4))
    first, second = await source.take()
    await source.give_back({first.id: timedelta(0), second.id: timedelta(minutes=1)})
    assert [each.id for each in await source.take()] == [first.id]
    other = TicketSource(queue.connection, slots(4))
    await other.give_back({first.id: timedelta(0)})  # it does not hold the ticket
    assert await other.take() == []


async def plan_of(connection: Any, seats: int) -> list[dict[str, Any]]:
    """The nodes of the plan of take.sql that read the queue, as they were run."""
    async with connection.transaction():
        told = await connection.fetchval(
            f"explain (analyze, format json) {TAKE_TICKETS}",
            *(uuid4(), seats + 1, seats, ALIVE, "work", [A], seats),
        )
    found: list[dict[str, Any]] = []
    rest = [json.loads(told)[0]["Plan"]]
    while rest:
        node = rest.pop()
        rest += node.get("Plans", [])
        if node.get("Relation Name") == "tickets":
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
        await database.server.run("analyze tickets", database.name)
    nodes = await plan_of(queue.connection, 8)
    assert {node["Node Type"] for node in nodes} <= {
        *("Index Scan", "Index Only Scan", "Bitmap Heap Scan", "ModifyTable"),
    }
    looked_at = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    read = sum(node.get(name, 0) * node["Actual Loops"] for node in nodes for name in looked_at)
    assert read < 400, nodes  # heads of 201 lanes and what is taken: never the 10,000
