"""A run's life, step by step, and what happens when two want it or nobody finishes it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from sqlalchemy import func, select, text, update

from memory_api import worker
from memory_api.bootstrap import build_runtime
from memory_api.core.db import Sessions, open_engine
from memory_api.core.errors import Conflict, InvalidRequest
from memory_api.core.ids import new_id
from memory_api.core.metrics import LEASE_LOSSES, REGISTRY
from memory_api.memories.tables import MemoryRow
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.execution import keep_lease
from memory_api.runs.lifecycle import StepResult
from memory_api.runs.queries import delete_finished_runs
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.steps import InterruptedStep
from tests.support.tickets import waiting_tickets

LEASE = timedelta(seconds=30)
SHORT = timedelta(milliseconds=-1)
"""A lease that has run out when it is given."""


async def claim(runtime: Runtime, tenant: TestTenant, run_id: UUID, owner: str, lease=LEASE):
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return await lifecycle.claim_run(session, run_id, owner, lease)


async def test_run_is_claimed_leased_and_done(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run()
    claimed = await claim(runtime, tenant, run.id, "me")
    assert claimed.run is not None
    now = await read_run(run.id)
    assert (now.state, now.attempt_count, now.lease_owner) == ("running", 1, "me")
    assert now.started_at is not None
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await lifecycle.finish_run(
            session, claimed.run, StepResult(data={"found": 1}, engine="rules")
        )
    now = await read_run(run.id)
    assert (now.state, now.result, now.engine) == ("done", {"found": 1}, "rules")
    assert (now.lease_owner, now.lease_until, now.error) == (None, None, None)
    assert now.finished_at is not None


async def test_leased_run_is_waited_for(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run()
    await claim(runtime, tenant, run.id, "me")
    second = await claim(runtime, tenant, run.id, "you")
    assert second.run is None
    assert second.wait is not None
    assert timedelta(0) < second.wait <= LEASE
    assert (await read_run(run.id)).lease_owner == "me"


@pytest.mark.parametrize("state", ["done", "failed", "dead"])
async def test_finished_run_is_not_claimed(runtime, tenant, queue_run, state: str) -> None:
    run = await queue_run()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await session.execute(
            update(RunRow)
            .where(RunRow.tenant_id == tenant.id, RunRow.id == run.id)
            .values(state=state)
        )
    assert await claim(runtime, tenant, run.id, "me") == lifecycle.ClaimResult()
    assert await claim(runtime, tenant, new_id(), "me") == lifecycle.ClaimResult()


async def test_expired_lease_is_taken_over_and_first_worker_cannot_finish(
    runtime, tenant, queue_run, read_run
) -> None:
    run = await queue_run()
    late = (await claim(runtime, tenant, run.id, "me", SHORT)).run
    assert late is not None
    taken = await claim(runtime, tenant, run.id, "you")
    assert taken.run is not None
    assert taken.run.attempt_count == 2

    async def finish_late() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            lifecycle.new_run(session, "mark", project_id="mine")
            await session.flush()
            await lifecycle.finish_run(session, late, StepResult(data={}))

    with pytest.raises(lifecycle.LeaseLost):
        await finish_late()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        mark = select(func.count()).where(RunRow.tenant_id == tenant.id, RunRow.kind == "mark")
        assert await session.scalar(mark) == 0, "what the loser did must be rolled back"
        assert not await lifecycle.extend_lease(session, late, LEASE)
        assert await lifecycle.record_failure(session, late, ValueError("late")) is None
        assert await lifecycle.extend_lease(session, taken.run, LEASE)
    now = await read_run(run.id)
    assert (now.state, now.lease_owner, now.error) == ("running", "you", None)


async def test_heartbeat_extends_lease(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run()
    lease = timedelta(milliseconds=300)
    mine = (await claim(runtime, tenant, run.id, "me", lease)).run
    assert mine is not None
    first = (await read_run(run.id)).lease_until
    async with keep_lease(runtime.sessions, mine, lease):
        while (await read_run(run.id)).lease_until == first:
            await asyncio.sleep(0.02)


async def test_failing_run_backs_off_and_ends_dead(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run(max_attempts=3)
    delays: list[timedelta | None] = []
    for attempt in range(3):
        mine = (await claim(runtime, tenant, run.id, f"w{attempt}")).run
        assert mine is not None
        async with runtime.sessions.for_tenant(tenant.id) as session:
            error = InvalidRequest(f"no. {attempt}")
            delays.append(await lifecycle.record_failure(session, mine, error))
    assert delays[0] is not None
    assert delays[1] is not None
    assert delays[2] is None
    assert timedelta(seconds=0.5) <= delays[0] <= timedelta(seconds=1) <= delays[1]
    dead = await read_run(run.id)
    assert (dead.state, dead.attempt_count) == ("dead", 3)
    assert dead.error == {"type": "InvalidRequest", "code": "invalid", "message": "no. 2"}
    assert dead.finished_at is not None


@settings(max_examples=100)
@given(st.integers(1, 200))
def test_back_off_grows_to_five_minutes(attempt: int) -> None:
    delay = lifecycle.backoff(attempt)
    full = min(timedelta(seconds=2.0 ** min(attempt - 1, 20)), timedelta(minutes=5))
    assert full / 2 <= delay <= full


async def test_dead_run_is_retried_from_the_start(runtime, tenant, queue_run, read_run) -> None:
    run = await queue_run(max_attempts=1)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        with pytest.raises(Conflict):
            await lifecycle.retry_run(session, run.id)
        assert await lifecycle.retry_run(session, new_id()) is None
    mine = (await claim(runtime, tenant, run.id, "me")).run
    assert mine is not None
    async with runtime.sessions.for_tenant(tenant.id) as session:
        await lifecycle.record_failure(session, mine, ValueError("no"))
    async with runtime.sessions.for_tenant(tenant.id) as session:
        assert await lifecycle.retry_run(session, run.id) is not None
    now = await read_run(run.id)
    assert (now.state, now.attempt_count, now.finished_at) == ("queued", 0, None)
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id)) is None
    assert (await read_run(run.id)).state == "done"


async def test_run_that_kills_workers_ends_dead_with_cause(
    runtime, tenant, queue_run, read_run
) -> None:
    run = await queue_run(max_attempts=2)
    for worker_name in ("a", "b"):
        assert (await claim(runtime, tenant, run.id, worker_name, SHORT)).run is not None
    refused = await claim(runtime, tenant, run.id, "c")
    assert (refused.run, refused.wait) == (None, None)
    assert refused.dead is not None
    assert await claim(runtime, tenant, run.id, "c") == lifecycle.ClaimResult()
    dead = await read_run(run.id)
    assert (dead.state, dead.attempt_count, dead.lease_owner) == ("dead", 2, None)
    assert dead.error["type"] == "Lost"
    assert "2 times" in dead.error["message"]


async def test_error_of_the_database_is_recorded_without_its_statement(
    runtime, tenant, queue_run, read_run
) -> None:
    """A handler that breaks a constraint: the run fails with a cause, the worker lives."""
    run = await queue_run(max_attempts=1)

    async def breaks(runtime: Runtime, run: RunRow) -> None:
        async with runtime.sessions.for_tenant(run.tenant_id) as session:
            await session.execute(
                update(RunRow)
                .where(RunRow.tenant_id == run.tenant_id, RunRow.id == run.id)
                .values(project_id=None)
            )

    steps = {"reflect": InterruptedStep("reflect", breaks)}
    assert await worker.process_ticket(runtime, Ticket(tenant.id, run.id), steps) is None
    dead = await read_run(run.id)
    assert dead.state == "dead"
    assert dead.error["code"] == "internal_error"
    assert "project_id" not in dead.error["message"]
    assert str(tenant.id) not in dead.error["message"]


async def test_unknown_kind_waits_for_a_newer_worker(runtime, tenant, read_run) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = lifecycle.new_run(session, "unheard-of", project_id="default", max_attempts=1)
    await worker.process_ticket(runtime, Ticket(tenant.id, run.id))
    assert (await read_run(run.id)).state == "queued"


async def test_ticket_is_rolled_back_with_its_transaction(runtime, tenant) -> None:
    async def enqueue_and_break() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            run = lifecycle.new_run(session, "reflect", project_id="default")
            await session.flush()
            await runtime.queue.enqueue(session, [Ticket(tenant.id, run.id)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await enqueue_and_break()
    assert await waiting_tickets(runtime, tenant.id) == []


async def test_delayed_ticket_is_not_delivered_early(runtime, tenant, queue_run) -> None:
    run = await queue_run()
    assert await waiting_tickets(runtime, tenant.id) == [Ticket(tenant.id, run.id)]
    async with runtime.sessions.for_tenant(tenant.id) as session:
        later = Ticket(tenant.id, run.id)
        await runtime.queue.enqueue(session, [later], after=timedelta(hours=1))
        await runtime.queue.enqueue(session, [])
    assert await waiting_tickets(runtime, tenant.id) == []


async def test_two_workers_with_one_ticket_count_it_once(
    runtime: Runtime, database: Database, tenant, queue_run, read_run
) -> None:
    """Two engines, the same ticket at the same moment, many times over."""
    other = Sessions(open_engine(database.url("hansei_worker"), pool_size=4))
    second = build_runtime(runtime.settings, other, runtime.default_embedder, runtime.queue)
    made = [await queue_run() for _ in range(8)]
    try:
        for run in made:
            ticket = Ticket(tenant.id, run.id)
            answers = await asyncio.gather(
                worker.process_ticket(runtime, ticket),
                worker.process_ticket(second, ticket),
                worker.process_ticket(second, ticket),
            )
            assert sum(answer is None for answer in answers) >= 1
            assert (await read_run(run.id)).attempt_count == 1
            assert (await read_run(run.id)).state == "done"
    finally:
        await other.close()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        episodes = select(func.count()).where(
            MemoryRow.tenant_id == tenant.id, MemoryRow.kind == "episode"
        )
        assert await session.scalar(episodes) == len(made)
        lesson = await session.scalar(
            select(MemoryRow).where(
                MemoryRow.tenant_id == tenant.id, MemoryRow.kind == "reflection"
            )
        )
        assert lesson is not None
        assert lesson.observation_count == len(made)


async def test_many_claims_at_once_give_one_holder(runtime, tenant, queue_run) -> None:
    run = await queue_run()
    claims = await asyncio.gather(*(claim(runtime, tenant, run.id, f"w{n}") for n in range(8)))
    assert sum(c.run is not None for c in claims) == 1
    assert all(c.run is not None or c.wait is not None for c in claims)


async def test_connection_closed_by_server_is_not_reused(
    database: Database, tenant, server: Any
) -> None:
    """After a restart of the server every pooled connection is dead; no request notices."""
    sessions = Sessions(open_engine(database.url("hansei_app"), pool_size=3))
    try:

        async def use() -> None:
            async with sessions.for_tenant(tenant.id) as session:
                await session.execute(select(func.pg_sleep(0.05)))

        await asyncio.gather(use(), use(), use())
        await server.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            f" where datname = '{database.name}' and usename = 'hansei_app'"
        )
        await asyncio.sleep(0.1)
        await asyncio.gather(use(), use(), use())
    finally:
        await sessions.close()


async def test_lost_lease_is_counted_once(runtime, tenant, queue_run) -> None:
    run = await queue_run()
    late = (await claim(runtime, tenant, run.id, "me", SHORT)).run
    assert late is not None
    assert (await claim(runtime, tenant, run.id, "you")).run is not None
    before = LEASE_LOSSES._value.get()

    async def finish_late() -> None:
        async with (
            keep_lease(runtime.sessions, late, LEASE),
            runtime.sessions.for_tenant(tenant.id) as session,
        ):
            await lifecycle.finish_run(session, late, StepResult(data={}))

    with pytest.raises(lifecycle.LeaseLost):
        await finish_late()
    assert LEASE_LOSSES._value.get() == before + 1
    exposed = generate_latest(REGISTRY).decode()
    assert f"hansei_lease_losses_total {before + 1}" in exposed


async def test_run_that_called_a_model_stays(runtime, tenant) -> None:
    """Without it, analytics would not know for which playbook the call was made."""
    paid, free = new_id(), new_id()
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for run_id in (paid, free):
            state = {
                "kind": "cleanup",
                "state": "done",
                "finished_at": datetime(2026, 1, 1, tzinfo=UTC),
            }
            session.add(RunRow(tenant_id=tenant.id, id=run_id, input={}, **state))
        await session.flush()
        await session.execute(
            text(
                "insert into llm_calls"
                " (tenant_id, id, run_id, provider, model, purpose, status, latency_ms)"
                " values (:tenant, gen_random_uuid(), :run, 'p', 'm', 'merge', 'ok', 1)"
            ),
            {"tenant": tenant.id, "run": paid},
        )
        await delete_finished_runs(session, datetime.now(UTC))
        left = await session.scalars(select(RunRow.id).where(RunRow.tenant_id == tenant.id))
        assert set(left) == {paid}
