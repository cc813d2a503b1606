"""A fault of the database that passes is no fault of the run: it is done again, and no attempt is
counted."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from apps.memory_api import worker
from apps.memory_api.core.db_errors import DatabaseLoginRefused, DatabaseUnavailable, is_transient
from apps.memory_api.llm.errors import LLMError
from apps.memory_api.run_queue.port import Ticket

PASSING = [
    asyncpg.DeadlockDetectedError("deadlock"),
    asyncpg.SerializationError("serialisation"),
    asyncpg.LockNotAvailableError("lock timeout"),
    asyncpg.TooManyConnectionsError("too many"),
    asyncpg.OutOfMemoryError("memory"),
    DBAPIError("select", {}, asyncpg.DeadlockDetectedError("deadlock")),
    DatabaseUnavailable(),
    DatabaseLoginRefused(),
    asyncpg.InternalClientError("cannot switch to state 15"),
]
LASTING = [
    asyncpg.UniqueViolationError("twice"),
    asyncpg.UndefinedTableError("no table"),
    ValueError("ours"),
    TimeoutError("of whatever"),
    ConnectionResetError("by somebody"),
    FileNotFoundError("a file"),
]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_transient_errors(error: Exception) -> None:
    assert is_transient(error)


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_permanent_errors(error: Exception) -> None:
    assert not is_transient(error)


async def test_deadlock_costs_no_attempt(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run(max_attempts=1)

    async def torn(*_: object) -> None:
        raise DBAPIError("update", {}, asyncpg.DeadlockDetectedError("deadlock detected"))

    steps = {run.kind: worker.FunctionStep(run.kind, torn)}
    for _ in range(3):
        wait = await worker.process_ticket(runtime, Ticket(tenant.id, run.id), steps)
        assert wait is not None
        assert timedelta(0) < wait < timedelta(seconds=5)
        now = await read_run(run.id)
        assert (now.state, now.attempts) == ("queued", 0)
        assert "deadlock" in now.error["message"]
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id)) is None
    assert (await read_run(run.id)).state == "done"


async def test_provider_connection_error_is_not_database_error(
    runtime, tenant, queue_run, read_run
) -> None:
    run = await queue_run(max_attempts=1)

    async def cut(*_: object) -> None:
        raise LLMError("the answer broke off") from ConnectionResetError("by peer")

    steps = {run.kind: worker.FunctionStep(run.kind, cut)}
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id), steps) is None
    assert (await read_run(run.id)).state == "dead"
