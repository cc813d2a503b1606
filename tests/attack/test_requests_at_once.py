"""Requests of several processes that change the same list at once: each counts as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets import queries as budgets
from memory_api.budgets.tables import BudgetRow
from memory_api.core.errors import Conflict
from memory_api.maintenance.retention import queries as retention
from memory_api.maintenance.tables import RetentionPolicyRow
from memory_api.runtime import Runtime
from memory_api.webhooks.queries import MAX_WEBHOOKS, insert_webhook
from memory_api.webhooks.schemas import CreateWebhookRequest
from tests.conftest import TestTenant

Change = Callable[[AsyncSession], Awaitable[Any]]
WEBHOOK = CreateWebhookRequest(url="https://example.com/x")


async def run_at_once(runtime: Runtime, tenant: TestTenant, first: Change, second: Change) -> None:
    """The second change begins before the first one is committed."""

    async def run_second() -> None:
        async with runtime.sessions.for_tenant(tenant.id) as session:
            await second(session)

    async with runtime.sessions.for_tenant(tenant.id) as session:
        await first(session)
        later = asyncio.create_task(run_second())
        await asyncio.wait([later], timeout=0.3)
    await later


async def test_budgets_that_are_replaced_at_once(runtime: Runtime, tenant: TestTenant) -> None:
    def replace(project: str) -> Change:
        row = BudgetRow(tenant_id=tenant.id, period="day", project_id=project, limit_tokens=1)
        return lambda session: budgets.replace_budgets(session, [row])

    for names in (("one", "two"), ("same", "same")):
        await run_at_once(runtime, tenant, *map(replace, names))
        async with runtime.sessions.for_tenant(tenant.id) as session:
            rows = await budgets.list_budgets(session)
        assert [row.project_id for row in rows] == [names[1]]


async def test_retention_that_is_replaced_at_once(runtime: Runtime, tenant: TestTenant) -> None:
    def replace(project: str) -> Change:
        row = RetentionPolicyRow(tenant_id=tenant.id, project_id=project, trace_days=1)
        return lambda session: retention.replace_policies(session, [row])

    for names in (("one", "two"), ("same", "same")):
        await run_at_once(runtime, tenant, *map(replace, names))
        async with runtime.sessions.for_tenant(tenant.id) as session:
            rows = await retention.list_policies(session)
        assert [row.project_id for row in rows] == [names[1]]


async def test_tenant_has_no_more_webhooks_than_its_limit(
    runtime: Runtime, tenant: TestTenant
) -> None:
    async def insert_all(session: AsyncSession) -> None:
        for _ in range(MAX_WEBHOOKS):
            await insert_webhook(session, WEBHOOK)

    with pytest.raises(Conflict):
        await run_at_once(
            runtime, tenant, insert_all, lambda session: insert_webhook(session, WEBHOOK)
        )
