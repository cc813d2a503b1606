"""Work on one playbook takes its locks in one order, so that it waits and never deadlocks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from httpx2 import AsyncClient
from sqlalchemy import text

from memory_api.playbooks.queries import get_playbook
from memory_api.playbooks.ref import PlaybookRef
from memory_api.runtime import Runtime
from tests.conftest import TestTenant

WAITING = text(
    "select pid from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid))"
)
HELD = text("select count(*) from pg_locks where locktype = 'advisory' and pid = any(:pids)")


def failed_call(tool: str, *cited: str) -> dict[str, Any]:
    call = {"event_type": "tool_call", "tool_name": tool, "content": '{"id": "W1"}'}
    answer = {"event_type": "tool_response", "tool_name": tool, "content": "Error: no such order"}
    return {
        "outcome": "failure",
        "playbook": "support",
        "used_bullet_keys": list(cited),
        "task_description": f"Use {tool} on order W1",
        "events": [call, answer | {"error": {"error_message": "no such order"}}],
    }


@pytest.mark.one_server("the locks are those of a node")
async def test_waiting_for_playbook_lock_holds_no_label_lock(
    api: AsyncClient, runtime: Runtime, tenant: TestTenant, drain: Any
) -> None:
    """A merge holds the playbook and may need a new tag; a reflection that made one of its own and
    then asked for the playbook would wait for it for ever.
    """
    said = {"id": "mis-00001", "section": "OTHERS", "content": "Look the order up first"}
    await api.put("/api/v1/playbooks/support", json={"bullets": [said]})
    trace = failed_call("some_tool", said["id"])
    await api.post("/api/v1/traces?reflect=always", json=trace)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await get_playbook(session, PlaybookRef("default", "support"), lock=True)
        work = asyncio.create_task(drain(tenant.id))
        pids: list[int] = []
        while not pids:
            assert not work.done(), work.result()
            await asyncio.sleep(0.02)
            pids = list(await session.scalars(WAITING))
        held = await session.scalar(HELD, {"pids": pids})
    assert held == 0
    assert await work > 0
