"""Taking tickets off the queue in a test, in place of a worker process."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
from sqlalchemy import text

from memory_api.run_queue.port import Ticket
from memory_api.run_queue.postgres import ENQUEUE, enqueue_parameters
from memory_api.runtime import Runtime

TAKE = text(
    "with taken as (delete from tickets where taken_by is null and due_at <= now() "
    "and lane = :tenant returning id, lane, run_id, slots, traceparent) "
    "select lane, run_id, slots, traceparent from taken order by id"
)
COUNT = text("select count(*) from tickets where lane = :tenant")


async def count_tickets(runtime: Runtime, tenant_id: UUID) -> int:
    async with runtime.sessions.without_tenant() as session:
        return int(str(await session.scalar(COUNT, {"tenant": tenant_id})))


async def waiting_tickets(runtime: Runtime, tenant_id: UUID) -> list[Ticket]:
    """Remove and return the tickets of a tenant that are due, in the order they came."""
    async with runtime.sessions.without_tenant() as session:
        rows = await session.execute(TAKE, {"tenant": tenant_id})
        return [
            Ticket(lane, run_id, slots=slots, traceparent=traceparent)
            for lane, run_id, slots, traceparent in rows
        ]


async def enqueue_tickets(connection: asyncpg.Connection[Any], *tickets: Ticket) -> None:
    """Add tickets without a notification."""
    values = enqueue_parameters(tickets)
    await connection.execute(ENQUEUE.text, *(values[name] for name in ENQUEUE.parameters))
