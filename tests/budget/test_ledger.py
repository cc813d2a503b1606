"""The durable ledger: a row per attempt, whatever becomes of the work."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from sqlalchemy import select

from apps.memory_api.budget.ledger import DatabaseLedger
from apps.memory_api.budget.tables import LLMCall
from apps.memory_api.llm.ledger import Attempt
from apps.memory_api.llm.port import Usage
from apps.memory_api.runtime import Runtime
from tests.conftest import TestTenant


def attempt(tenant: TestTenant) -> Attempt:
    return Attempt(
        provider="openai",
        model="gpt-4o-mini",
        purpose="reflect",
        prompt_hash="abc",
        tenant_id=tenant.id,
        run_id=None,
        started_at=datetime(2026, 11, 21, tzinfo=UTC),
        latency_ms=12,
        status="ok",
        usage=Usage(1200, 80, cached_input_tokens=1024, cache_write_tokens=5),
        usd=Decimal("0.000000123456789"),
        finish_reason="stop",
        request_id="req_1",
    )


async def rows(runtime: Runtime, tenant: TestTenant) -> list[LLMCall]:
    async with runtime.sessions.tenant(tenant.id) as session:
        return list(await session.scalars(select(LLMCall).where(LLMCall.tenant_id == tenant.id)))


async def test_all_of_it_is_kept_to_the_last_digit(runtime: Runtime, tenant: TestTenant) -> None:
    await DatabaseLedger(runtime.sessions).record(attempt(tenant))
    (row,) = await rows(runtime, tenant)
    assert row.usd == Decimal("0.000000123456789")
    assert (row.input_tokens, row.output_tokens) == (1200, 80)
    assert (row.cached_tokens, row.cache_write_tokens) == (1024, 5)
    assert row.created_at == datetime(2026, 11, 21, tzinfo=UTC)
    assert (row.request_id, row.prompt_hash, row.latency_ms) == ("req_1", "abc", 12)


async def test_nobody_counted_is_not_zero(runtime: Runtime, tenant: TestTenant) -> None:
    failed = replace(
        attempt(tenant), status="error", usage=None, usd=None, error="llm_timeout", detail="late"
    )
    await DatabaseLedger(runtime.sessions).record(failed)
    (row,) = await rows(runtime, tenant)
    assert (row.input_tokens, row.output_tokens, row.usd) == (None, None, None)
    assert (row.status, row.error, row.detail) == ("error", "llm_timeout", "late")


async def test_the_record_stays_when_the_work_is_rolled_back(
    runtime: Runtime, tenant: TestTenant
) -> None:
    ledger = DatabaseLedger(runtime.sessions)

    async def undone() -> None:
        async with runtime.sessions.tenant(tenant.id):
            await ledger.record(attempt(tenant))
            raise RuntimeError("undone")

    with pytest.raises(RuntimeError, match="undone"):
        await undone()
    assert len(await rows(runtime, tenant)) == 1


async def test_a_call_in_nobodys_name_is_refused(runtime: Runtime, tenant: TestTenant) -> None:
    with pytest.raises(ValueError, match="tenant"):
        await DatabaseLedger(runtime.sessions).record(replace(attempt(tenant), tenant_id=None))
