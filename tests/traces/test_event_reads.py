"""How often and how much of events the steps of learning read."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.traces import queries
from memory_api.traces.event_cache import EVENT_CACHE, EventCache
from memory_api.traces.queries import load_attempt_events
from memory_api.traces.schemas import Event
from memory_api.traces.tables import TraceRow

CALL = {"event_type": "tool_call", "tool_name": "ls", "content": "ls"}


def failed(count: int, **fields: Any) -> dict[str, Any]:
    last = {"event_type": "error_event", "content": "No such file", "error": "No such file"}
    return {"outcome": "failure", "task_key": "k", "events": [*[CALL] * count, last]} | fields


@contextmanager
def event_reads(runtime: Any) -> Generator[list[str]]:
    """The statements that read events while the block runs."""
    reads: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "from trace_events" in " ".join(statement.split()).lower():
            reads.append(statement)

    engine = runtime.sessions.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield reads
    finally:
        event.remove(engine, "before_cursor_execute", note)


async def test_events_are_read_once_per_chain(api, tenant, runtime, drain) -> None:
    (await api.post("/api/v1/traces", json=failed(3))).raise_for_status()
    with event_reads(runtime) as reads:
        await drain(tenant.id)
    assert len(reads) == 1, reads


@pytest.mark.parametrize("trace", [failed(3), {"outcome": "success", "events": [CALL]}])
async def test_events_are_dropped_at_the_end_of_the_chain(
    api, tenant, runtime, drain, trace: dict[str, Any]
) -> None:
    """With and without a reflection."""
    answer = await api.post("/api/v1/traces", json=trace)
    await drain(tenant.id)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        with event_reads(runtime) as reads:
            await load(EVENT_CACHE, session, tenant.id, UUID(answer.json()["trace_id"]))
    assert len(reads) == 1, "the cache held the events"


async def load(
    cache: EventCache, session: AsyncSession, tenant_id: UUID, trace_id: UUID
) -> Sequence[Event]:
    return await cache.load(session, await session.get_one(TraceRow, (tenant_id, trace_id)))


async def test_cached_events_survive_a_rollback(api, tenant, runtime) -> None:
    """The database fails while a step loads: the next attempt reads the events from the cache."""
    answer = await api.post("/api/v1/traces?reflect=never", json=failed(3))
    trace_id = UUID(answer.json()["trace_id"])
    cache = EventCache()
    with suppress(ConnectionResetError):
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await load(cache, session, tenant.id, trace_id)
            raise ConnectionResetError
    async with runtime.sessions.for_tenant(tenant.id) as session:
        events = await load(cache, session, tenant.id, trace_id)
    assert [event.content for event in events] == ["ls", "ls", "ls", "No such file"]


async def test_events_are_dropped_a_minute_after_their_last_use(api, tenant, runtime) -> None:
    ids: list[UUID] = []
    for count in (1, 2):
        answer = await api.post("/api/v1/traces?reflect=never", json=failed(count))
        ids.append(UUID(answer.json()["trace_id"]))
    now = 0.0
    cache = EventCache(clock=lambda: now)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        first = await load(cache, session, tenant.id, ids[0])
        now = 50.0
        assert await load(cache, session, tenant.id, ids[0]) is first
        now = 100.0
        await load(cache, session, tenant.id, ids[1])
        assert len(cache) == 2
        now = 111.0
        await load(cache, session, tenant.id, ids[1])
        assert len(cache) == 1
        assert await load(cache, session, tenant.id, ids[0]) is not first


async def test_earlier_attempts_are_read_in_part(api, tenant, runtime, monkeypatch) -> None:
    monkeypatch.setattr(queries, "MAX_FIRST_EVENTS", 2)
    monkeypatch.setattr(queries, "MAX_LAST_EVENTS", 3)
    monkeypatch.setattr(queries, "MAX_ATTEMPT_CONTENT", 4)
    ids = [
        (await api.post("/api/v1/traces?reflect=never", json=failed(count))).json()["trace_id"]
        for count in (9, 2)
    ]
    async with runtime.sessions.for_tenant(tenant.id) as session:
        found = await load_attempt_events(session, ids)
    events = {str(trace_id): [e.event_id for e in part] for trace_id, part in found.items()}
    assert events[ids[0]] == ["e0000", "e0001", "e0007", "e0008", "e0009"]
    assert events[ids[1]] == ["e0000", "e0001", "e0002"]
    last = next(part for trace_id, part in found.items() if str(trace_id) == ids[1])[-1]
    assert (last.content, last.error) == ("No s", {"message": "No such file"})
