"""Shared by commands that start a run for one tenant or all, and wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

from memory_api.auth.queries import list_active_tenant_ids, tenant_exists
from memory_api.commands.database import CommandFailed
from memory_api.core.ids import to_tenant_id
from memory_api.run_queue.port import Ticket
from memory_api.runs.execution import RunUnfinished
from memory_api.runs.queries import get_run
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket

POLL_INTERVAL_SECONDS = 0.5


async def find_tenants(runtime: Runtime, tenant: str | None) -> dict[UUID, str]:
    """Return ID → displayed name. The name of a tenant is its ID with --all, because the worker
    role cannot read names.
    """
    if tenant is None:
        async with runtime.sessions.without_tenant() as session:
            names = {id_: str(id_) for id_ in await list_active_tenant_ids(session)}
        if not names:
            raise CommandFailed("No active tenant found. --all needs HANSEI_WORKER_URL.")
        return names
    tenant_id = to_tenant_id(tenant)
    async with runtime.sessions.for_tenant(tenant_id) as session:
        if not await tenant_exists(session):
            raise CommandFailed(
                f"Tenant '{tenant}' not found. Run `hansei tenant list` to see all tenants."
            )
    return {tenant_id: tenant}


async def execute_here(
    runtime: Runtime, run: RunRow, name: str, on_poll: Callable[[RunRow], None] | None = None
) -> RunRow:
    """Execute a run in this process, unless a worker is faster, and return it when it is done.
    `on_poll` gets its current row repeatedly. Raises `CommandFailed` with `name` if it fails.
    """
    while True:
        execution = asyncio.create_task(process_ticket(runtime, Ticket(run.tenant_id, run.id)))
        await asyncio.wait({execution}, timeout=POLL_INTERVAL_SECONDS)
        while not execution.done():
            await _poll(runtime, run, on_poll)
            await asyncio.wait({execution}, timeout=POLL_INTERVAL_SECONDS)
        await execution
        current = await _poll(runtime, run, on_poll)
        if current is None:
            raise CommandFailed(f"{name} failed: its run was deleted")
        if current.state == "done":
            return current
        error: dict[str, Any] = current.error or {}
        message = error.get("message", "its run failed")
        if current.state in ("failed", "dead"):
            raise CommandFailed(f"{name} failed: {message}")
        if current.state == "queued" and error and error["type"] != RunUnfinished.__name__:
            raise CommandFailed(f"{name} failed and will be retried by a worker: {message}")
        await asyncio.sleep(POLL_INTERVAL_SECONDS)


async def _poll(
    runtime: Runtime, run: RunRow, on_poll: Callable[[RunRow], None] | None
) -> RunRow | None:
    async with runtime.sessions.for_tenant(run.tenant_id) as session:
        current = await get_run(session, run.id)
    if current is not None and on_poll is not None:
        on_poll(current)
    return current
