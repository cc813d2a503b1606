"""A fault of the database that passes is no fault of the run: it is done again, and no attempt is
counted."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from apps.memory_api import worker
from apps.memory_api.core.away import may_pass
from apps.memory_api.jobs.port import Ticket
from apps.memory_api.llm.errors import LLMError

PASSING = [
    asyncpg.DeadlockDetectedError("deadlock"),
    asyncpg.SerializationError("serialisation"),
    asyncpg.LockNotAvailableError("lock timeout"),
    asyncpg.TooManyConnectionsError("too many"),
    asyncpg.OutOfMemoryError("memory"),
    DBAPIError("select", {}, asyncpg.DeadlockDetectedError("deadlock")),
    ConnectionResetError("gone"),
    asyncpg.InternalClientError("cannot switch to state 15"),
]
LASTING = [
    asyncpg.UniqueViolationError("twice"),
    asyncpg.UndefinedTableError("no table"),
    ValueError("ours"),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_may_pass(error: Exception) -> None:
    assert may_pass(error)


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_stays(error: Exception) -> None:
    assert not may_pass(error)


async def test_a_deadlock_costs_no_attempt(
    runtime, tenant, queued, look, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await queued(max_attempts=1)
    done = worker.HANDLERS[run.kind]

    async def torn(*_: object) -> None:
        raise DBAPIError("update", {}, asyncpg.DeadlockDetectedError("deadlock detected"))

    monkeypatch.setitem(worker.HANDLERS, run.kind, torn)
    for _ in range(3):
        wait = await worker.work(runtime, Ticket(tenant.id, run.id))
        assert wait is not None
        assert timedelta(0) < wait < timedelta(seconds=5)
        now = await look(run.id)
        assert (now.state, now.attempts) == ("queued", 0)
        assert "deadlock" in now.error["message"]
    monkeypatch.setitem(worker.HANDLERS, run.kind, done)
    assert await worker.work(runtime, Ticket(tenant.id, run.id)) is None
    assert (await look(run.id)).state == "done"


async def test_a_provider_that_breaks_the_connection_is_not_the_database(
    runtime, tenant, queued, look, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await queued(max_attempts=1)

    async def cut(*_: object) -> None:
        raise LLMError("the answer broke off") from ConnectionResetError("by peer")

    monkeypatch.setitem(worker.HANDLERS, run.kind, cut)
    assert await worker.work(runtime, Ticket(tenant.id, run.id)) is None
    assert (await look(run.id)).state == "dead"
