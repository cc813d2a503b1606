"""A fault of the database that passes is no fault of the run: it is done again, and no attempt is
counted."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from memory_api import worker
from memory_api.core.db_errors import DatabaseLoginRefused, DatabaseUnavailable, is_transient
from memory_api.embeddings.port import EmbedderUnavailable
from memory_api.llm.errors import LLMError
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.tables import RunRow
from tests.support.cases import each_case
from tests.support.steps import InterruptedStep

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


@each_case("error", PASSING)
def test_transient_errors(error: Exception) -> None:
    assert is_transient(error)


@each_case("error", LASTING)
def test_permanent_errors(error: Exception) -> None:
    assert not is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        DBAPIError("update", {}, asyncpg.DeadlockDetectedError("deadlock detected")),
        EmbedderUnavailable("deadlock of the embedder"),
    ],
    ids=["database", "embedder"],
)
async def test_outage_costs_no_attempt(runtime, tenant, queue_run, read_run, error) -> None:
    run = await queue_run(max_attempts=1)

    async def torn(*_: object) -> None:
        raise error

    steps = {run.kind: InterruptedStep(run.kind, torn)}
    for _ in range(3):
        wait = await worker.process_ticket(runtime, Ticket(tenant.id, run.id), steps)
        assert wait is not None
        assert timedelta(0) < wait < timedelta(seconds=20)
        now = await read_run(run.id)
        assert (now.state, now.attempt_count) == ("queued", 0)
        assert "deadlock" in now.error["message"]
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id)) is None
    assert (await read_run(run.id)).state == "done"


def test_postponements_become_longer_up_to_five_minutes() -> None:
    def longest(count: int) -> timedelta:
        run = RunRow(kind="reflect", error={lifecycle.POSTPONEMENTS: count})
        delays = [worker.postponement_for(run, DatabaseUnavailable()) for _ in range(200)]
        return max(delay for delay in delays if delay is not None)

    longest_by_count = [longest(count) for count in range(12)]
    assert longest_by_count[0] <= timedelta(seconds=2)
    assert longest_by_count[4] > 4 * longest_by_count[0]
    assert timedelta(minutes=2) < longest_by_count[-1] <= timedelta(minutes=5)


async def test_provider_connection_error_is_not_database_error(
    runtime, tenant, queue_run, read_run
) -> None:
    run = await queue_run(max_attempts=1)

    async def cut(*_: object) -> None:
        raise LLMError("the answer broke off") from ConnectionResetError("by peer")

    steps = {run.kind: InterruptedStep(run.kind, cut)}
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id), steps) is None
    assert (await read_run(run.id)).state == "dead"
