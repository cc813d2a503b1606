"""Taking tickets off the queue in a test, in place of a worker process."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import text

from memory_api.run_queue.port import Ticket
from memory_api.runtime import Runtime

TAKE = text(
    "with taken as (delete from pgqueuer where status = 'queued' and execute_after <= now() "
    "and convert_from(payload, 'UTF8') like :mine returning id, payload) "
    "select payload from taken order by id"
)
COUNT = text("select count(*) from pgqueuer where convert_from(payload, 'UTF8') like :mine")


async def count_tickets(runtime: Runtime, tenant_id: UUID) -> int:
    async with runtime.sessions.without_tenant() as session:
        return int(str(await session.scalar(COUNT, {"mine": f"{tenant_id}/%"})))


async def waiting_tickets(runtime: Runtime, tenant_id: UUID) -> list[Ticket]:
    """Remove and return the tickets of a tenant that are due, in the order they came."""
    async with runtime.sessions.without_tenant() as session:
        rows = await session.execute(TAKE, {"mine": f"{tenant_id}/%"})
        return [Ticket.decode(bytes(payload)) for (payload,) in rows]
