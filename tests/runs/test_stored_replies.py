"""A reply that is paid for is not asked for again; and retries, unknown kinds, old runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from memory_api.core.ids import new_id
from memory_api.learning import RUN_STEPS
from memory_api.llm.tables import LLMReplyRow
from memory_api.maintenance.tasks import BatchStep
from memory_api.maintenance.upkeep import UPKEEP, UpkeepStep
from memory_api.run_queue.port import Ticket
from memory_api.runs import lifecycle
from memory_api.runs.execution import execute_step
from memory_api.runs.lifecycle import POSTPONEMENTS
from memory_api.runs.tables import RunRow
from memory_api.runtime import Runtime
from memory_api.worker import process_ticket
from tests.conftest import TestTenant
from tests.support.model_service import GOOD, Serve, Service, trace
from tests.support.stub_provider import answer


@pytest.fixture
async def service(serve: Serve) -> Service:
    return await serve("openai")


async def stored(service: Service) -> list[LLMReplyRow]:
    async with service.runtime.sessions.for_tenant(service.tenant.id) as session:
        return list(await session.scalars(select(LLMReplyRow)))


async def reflection_ticket(service: Service) -> Ticket:
    sent = await service.api.post("/api/v1/traces", json=trace())
    first = Ticket(service.tenant.id, sent.json()["run_id"])
    assert await process_ticket(service.background, first) is None
    next_run_id = (await service.run(first.run_id)).result["next_run_id"]
    return Ticket(service.tenant.id, UUID(next_run_id))


class SaveFails(Exception):
    """The transaction that uses the reply fails."""


async def test_retried_step_uses_the_stored_reply(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = await reflection_ticket(service)
    step = RUN_STEPS["reflect"]
    save = type(step).save  # type: ignore[union-attr]
    failures = [SaveFails(), SaveFails()]

    async def fail_twice(self: Any, *arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return await save(self, *arguments)

    monkeypatch.setattr(type(step), "save", fail_twice)
    for _ in range(2):
        assert await process_ticket(service.background, ticket) is not None
        (reply,) = await stored(service)
        assert reply.run_id == ticket.run_id
    assert await process_ticket(service.background, ticket) is None
    run = await service.run(ticket.run_id)
    assert (run.state, run.attempt_count) == ("done", 3)
    assert run.result["reflection_text"] == GOOD["reflection"]
    assert len(service.stub.calls) == len(await service.calls()) == 1, "bought once"
    assert run.usage["calls"] == 1
    assert await stored(service) == [], "deleted with the end of the run"


async def test_unusable_reply_is_asked_for_again(service: Service) -> None:
    ticket = await reflection_ticket(service)
    good = service.stub.behave
    service.stub.behave = lambda _call: answer("no JSON")
    assert await process_ticket(service.background, ticket) is not None
    assert await stored(service) == []
    service.stub.behave = good
    assert await process_ticket(service.background, ticket) is None
    assert (await service.run(ticket.run_id)).state == "done"


async def test_stored_reply_is_redacted_and_of_its_tenant(
    service: Service, monkeypatch: pytest.MonkeyPatch, make_tenant: Any
) -> None:
    ticket = await reflection_ticket(service)
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    service.stub.behave = lambda _call: answer(GOOD | {"strategy": f"Use {secret} to fetch."})

    async def fail(*_: Any) -> Any:
        raise SaveFails

    monkeypatch.setattr(type(RUN_STEPS["reflect"]), "save", fail)
    assert await process_ticket(service.background, ticket) is not None
    (reply,) = await stored(service)
    assert secret not in reply.text
    assert GOOD["reflection"] in reply.text
    other = await make_tenant()
    async with service.runtime.sessions.for_tenant(other.id) as session:
        assert list(await session.scalars(select(LLMReplyRow))) == []


async def test_upkeep_deletes_old_replies(runtime: Runtime, tenant: TestTenant) -> None:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for hours in (1, 25):
            session.add(
                LLMReplyRow(
                    tenant_id=tenant.id,
                    run_id=new_id(),
                    request_hash=str(hours),
                    provider="openai",
                    model="m",
                    text="hello",
                    finish_reason="stop",
                    **dict.fromkeys(
                        ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens"), 0
                    ),
                    latency_ms=1,
                    created_at=datetime.now(UTC) - timedelta(hours=hours),
                )
            )
        run = lifecycle.new_run(session, UPKEEP, project_id="default")
        lifecycle.start_in_foreground(run, "me", timedelta(minutes=1))
    await execute_step(runtime, run, UpkeepStep())
    async with runtime.sessions.for_tenant(tenant.id) as session:
        left = await session.scalars(select(LLMReplyRow.request_hash))
        assert list(left) == ["1"]


async def dead_run(runtime: Runtime, tenant: TestTenant) -> RunRow:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run = lifecycle.new_run(session, "reflect", project_id="default")
        run.state, run.attempt_count = "dead", 5
        run.error = {"code": "llm_timeout", "message": "late", POSTPONEMENTS: 7}
        run.started_at = run.finished_at = datetime.now(UTC)
    return run


async def test_manual_retry_starts_afresh(api: Any, runtime: Runtime, tenant: TestTenant) -> None:
    run = await dead_run(runtime, tenant)
    retried = (await api.post(f"/api/v1/runs/{run.id}/retry")).json()
    assert (retried["state"], retried["attempt_count"], retried["error"]) == ("queued", 0, None)
    assert (retried["started_at"], retried["finished_at"]) == (None, None)


async def test_of_two_parallel_retries_one_is_accepted(
    api: Any, runtime: Runtime, tenant: TestTenant
) -> None:
    for _ in range(5):
        run = await dead_run(runtime, tenant)
        url = f"/api/v1/runs/{run.id}/retry"
        answers = await asyncio.gather(api.post(url), api.post(url))
        assert sorted(answer.status_code for answer in answers) == [202, 409]


async def test_unknown_kind_is_left_for_a_newer_worker(
    runtime: Runtime, tenant: TestTenant, logs: list[dict[str, Any]]
) -> None:
    kind = f"later_{new_id().hex}"
    tickets: list[Ticket] = []
    async with runtime.sessions.for_tenant(tenant.id) as session:
        for _ in range(2):
            run = lifecycle.new_run(session, kind, project_id="default")
            await session.flush()
            tickets.append(Ticket(tenant.id, run.id))
        await session.execute(
            update(RunRow).values(created_at=datetime.now(UTC) - timedelta(days=9))
        )
    for ticket in tickets * 7:
        assert await process_ticket(runtime, ticket) == timedelta(seconds=30)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        runs = list(await session.scalars(select(RunRow).where(RunRow.kind == kind)))
    assert [(run.state, run.attempt_count) for run in runs] == [("queued", 0)] * 2
    assert [entry["kind"] for entry in logs if entry["event"] == "run_kind_unknown"] == [kind]
    known = replace(runtime, process_name="newer")
    done: list[RunRow] = []

    async def work(_runtime: Runtime, run: RunRow) -> lifecycle.StepResult:
        done.append(run)
        return lifecycle.StepResult(data={})

    assert await process_ticket(known, tickets[0], {kind: BatchStep(work)}) is None
    assert [run.id for run in done] == [tickets[0].run_id]
