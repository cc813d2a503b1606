"""The durable ledger: a row per attempt, whatever becomes of the work, also while the database is
away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from sqlalchemy import select

from memory_api.bootstrap import build_model_chain
from memory_api.budgets.accounting import FinishedCall, ModelAccounting
from memory_api.budgets.ledger import LLMCallRecord
from memory_api.budgets.reservations import CostEstimate
from memory_api.budgets.tables import BudgetReservationRow, LLMCallRow
from memory_api.core.db import Sessions, open_engine
from memory_api.llm.circuit_breaker import CircuitBreakers
from memory_api.llm.port import LLM, LLMRequest, Message, TokenUsage
from memory_api.llm.registry import open_llm
from memory_api.llm.stored_replies import get_stored_reply, request_hash
from memory_api.runs.lifecycle import new_run
from memory_api.runtime import Runtime
from tests.conftest import Database, TestTenant
from tests.support.budget_books import Books
from tests.support.stub_provider import StubProvider, answer


def attempt(tenant: TestTenant, **changes: Any) -> LLMCallRecord:
    fields: dict[str, Any] = {
        "provider": "openai",
        "model": "gpt-4o-mini",
        "purpose": "reflect",
        "prompt_hash": "abc",
        "tenant_id": tenant.id,
        "project_id": "p",
        "run_id": None,
        "started_at": datetime(2026, 11, 21, tzinfo=UTC),
        "latency_ms": 12,
        "status": "ok",
        "usage": TokenUsage(1200, 80, cached_input_tokens=1024, cache_write_tokens=5),
        "usd": Decimal("0.000000123456789"),
        "finish_reason": "stop",
        "request_id": "req_1",
    }
    return LLMCallRecord(**fields | changes)


async def record(runtime: Runtime, tenant: TestTenant, call: LLMCallRecord) -> UUID:
    accounting = ModelAccounting(runtime.sessions)
    estimate = CostEstimate("openai", "m", "t", tenant.id, None, TokenUsage(9), Decimal(1))
    reservation = await accounting.reserve(estimate)
    request = LLMRequest((Message("user", "hello"),))
    await accounting.finish(FinishedCall(reservation, call, call.usd, 9, request))
    return reservation


async def rows(runtime: Runtime, tenant: TestTenant) -> list[LLMCallRow]:
    async with runtime.sessions.for_tenant(tenant.id) as session:
        return list(
            await session.scalars(select(LLMCallRow).where(LLMCallRow.tenant_id == tenant.id))
        )


async def test_costs_are_stored_without_rounding(runtime: Runtime, tenant: TestTenant) -> None:
    reservation = await record(runtime, tenant, attempt(tenant))
    (row,) = await rows(runtime, tenant)
    assert (row.id, row.project_id) == (reservation, "p")
    assert row.cost_usd == Decimal("0.000000123456789")
    assert (row.input_tokens, row.output_tokens) == (1200, 80)
    assert (row.cached_tokens, row.cache_write_tokens) == (1024, 5)
    assert row.created_at == datetime(2026, 11, 21, tzinfo=UTC)
    assert (row.request_id, row.prompt_hash, row.latency_ms) == ("req_1", "abc", 12)


async def test_unknown_token_count_is_null(runtime: Runtime, tenant: TestTenant) -> None:
    failed = attempt(
        tenant, status="error", usage=None, usd=None, error="llm_timeout", detail="late"
    )
    await record(runtime, tenant, failed)
    (row,) = await rows(runtime, tenant)
    assert (row.input_tokens, row.output_tokens, row.cost_usd) == (None, None, None)
    assert (row.status, row.error, row.error_detail) == ("error", "llm_timeout", "late")


async def test_call_is_recorded_when_work_is_rolled_back(
    runtime: Runtime, tenant: TestTenant
) -> None:
    async def undone() -> None:
        async with runtime.sessions.for_tenant(tenant.id):
            await record(runtime, tenant, attempt(tenant))
            raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        await undone()
    assert len(await rows(runtime, tenant)) == 1


@pytest.fixture
async def own_sessions(database: Database) -> AsyncIterator[Sessions]:
    """Sessions whose connections a test may break."""
    sessions = Sessions(open_engine(database.url("hansei_app"), pool_size=2, timeout=1.0))
    yield sessions
    await sessions.close()


@pytest.fixture
async def model(stub: StubProvider) -> AsyncIterator[LLM]:
    llm: Any = open_llm("openai", model="gpt-4o-mini", api_key="k", base_url=stub.openai_url)
    llm._provider = "openai"  # priced as the provider's own
    yield llm
    await llm.aclose()


async def test_ledger_that_cannot_be_written_loses_no_reply_and_settles_nothing(
    runtime: Runtime,
    database: Database,
    own_sessions: Sessions,
    model: LLM,
    stub: StubProvider,
    tenant: TestTenant,
    logs: list[dict[str, Any]],
) -> None:
    """A lock on the ledger makes its statements time out, as a stopped database does."""
    accounting = ModelAccounting(own_sessions)
    chain = build_model_chain(
        [model],
        own_sessions,
        accounting,
        CircuitBreakers(),
        attempts=1,
        max_concurrent_calls=8,
    )
    async with runtime.sessions.for_tenant(tenant.id) as session:
        run_id = new_run(session, "reflect", project_id="p").id
    asked = LLMRequest(
        (Message("user", "x" * 400),), tenant_id=tenant.id, run_id=run_id, project_id="p"
    )
    stub.behave = lambda _call: answer("paid for", input_tokens=1000, output_tokens=10)
    lock: Any = await asyncpg.connect(database.url("hansei_owner"))
    try:
        async with lock.transaction():
            await lock.execute("lock table llm_calls in access exclusive mode")
            replies = await asyncio.gather(chain.complete(asked), chain.complete(asked))
            assert [reply.text for reply in replies] == ["paid for"] * 2
            assert accounting.pending_count == 2
            async with runtime.sessions.for_tenant(tenant.id) as session:
                open_rows = list(await session.scalars(select(BudgetReservationRow)))
            assert [row.settled_at for row in open_rows] == [None, None]
            assert all(row.amount_usd for row in open_rows)
            spent, reserved = await Books(runtime, tenant).spending()
            assert (spent, reserved > 0) == (0, True)
    finally:
        await lock.close()
    async with asyncio.timeout(20):
        while accounting.pending_count:
            await asyncio.sleep(0.05)
    spent, reserved = await Books(runtime, tenant).spending()
    assert (spent, reserved) == (pytest.approx(2 * (0.00015 + 0.000006)), 0)
    assert len(await rows(runtime, tenant)) == 2
    async with runtime.sessions.for_tenant(tenant.id) as session:
        stored = await get_stored_reply(session, run_id, request_hash(asked))
    assert stored is not None
    postponed = [e for e in logs if e["event"] == "model_call_recording_postponed"]
    assert len(postponed) == 1, "logged once"
    await accounting.aclose()
