"""Reserve and settle model calls without a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from memory_api.budgets import reservations
from memory_api.budgets.alerts import raise_alerts
from memory_api.budgets.queries import Spending, list_budgets, load_totals
from memory_api.budgets.reservations import CostEstimate, period_start, total_keys
from memory_api.budgets.tables import BudgetAlertRow, BudgetRow
from memory_api.llm.port import LLMRequest, Message, TokenUsage
from memory_api.runtime import Runtime
from tests.conftest import TestTenant


def request(tenant: TestTenant, **more: Any) -> LLMRequest:
    return LLMRequest((Message("user", "x" * 4000),), tenant_id=tenant.id, purpose="test", **more)


async def limit(runtime: Runtime, tenant: TestTenant, usd: str | None, **more: Any) -> None:
    amount = None if usd is None else Decimal(usd)
    async with runtime.sessions.for_tenant(tenant.id) as session:
        session.add(BudgetRow(tenant_id=tenant.id, **{"period": "day", "limit_usd": amount} | more))


@dataclass
class Books:
    """The books of one tenant at one time."""

    runtime: Runtime
    tenant: TestTenant
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def reserve(self, usd: str | None, **changes: Any) -> UUID:
        fields: dict[str, Any] = {
            "provider": "openai",
            "model": "m",
            "purpose": "test",
            "tenant_id": self.tenant.id,
            "run_id": None,
            "usage": TokenUsage(input_tokens=1000, output_tokens=500),
            "usd": None if usd is None else Decimal(usd),
            "project_id": "default",
        }
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            return await reservations.reserve(session, CostEstimate(**fields | changes), self.now)

    async def settle(
        self, reservation: UUID, usd: str | None, tokens: int = 100
    ) -> list[BudgetAlertRow]:
        amount = None if usd is None else Decimal(usd)
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            totals = await reservations.settle(session, reservation, amount, tokens)
            budgets = await list_budgets(session)
            return list(await raise_alerts(session, budgets, totals, self.now))

    async def settle_expired(self) -> int:
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            return await reservations.settle_expired(session, self.now)

    async def total(self, project_id: str = "", purpose: str = "") -> Spending:
        """What the day has cost."""
        keys = total_keys(self.now, project_id, purpose)
        start = period_start("day", self.now).date()
        (key,) = [
            k for k in keys if (k.period, k.project_id, k.purpose) == ("day", project_id, purpose)
        ]
        assert key.starts_on == start
        async with self.runtime.sessions.for_tenant(self.tenant.id) as session:
            return (await load_totals(session, [key])).get(key, Spending())

    async def spending(self) -> tuple[float, float]:
        """US dollars that the day has cost, and that are reserved."""
        total = await self.total()
        return float(total.spent_usd), float(total.reserved_usd)
