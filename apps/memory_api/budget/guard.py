"""The durable budget: what a call may cost is set aside before it is made, and settled after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from apps.memory_api.budget.queries import Spent, list_budgets, set_aside, settle, sum_spent
from apps.memory_api.budget.tables import BudgetRow
from apps.memory_api.core.db import Sessions
from apps.memory_api.core.ids import new_id
from apps.memory_api.llm.budget import Estimate
from apps.memory_api.llm.errors import LLMOverBudget, LLMUnpriced
from apps.memory_api.llm.port import Usage

EXPIRES = timedelta(minutes=15)
"""After which a reservation counts no more: whoever made it is gone."""


def _now() -> datetime:
    return datetime.now(UTC)


class DatabaseBudget:
    """Of the tenants' `budgets`. A tenant without one may spend what it likes; what it spends is
    counted all the same, so that a budget made in mid-month knows of the days before.
    """

    def __init__(self, sessions: Sessions, clock: Callable[[], datetime] = _now) -> None:
        self._sessions = sessions
        self._clock = clock
        self._whose: dict[UUID, UUID] = {}

    async def reserve(self, estimate: Estimate) -> UUID:
        """Raises `LLMOverBudget` with its figures, `LLMUnpriced`, and ValueError for a call in
        nobody's name.
        """
        if estimate.tenant_id is None:
            raise ValueError("a call of a model needs the tenant in whose name it is made")
        now, reservation = self._clock(), new_id()
        async with self._sessions.tenant(estimate.tenant_id) as session:
            # The lock makes calls of one tenant wait for each other here, and only here.
            await _check(session, await list_budgets(session, lock=True), estimate, now)
            aside = {
                "tenant_id": estimate.tenant_id,
                "id": reservation,
                "run_id": estimate.run_id,
                "provider": estimate.provider,
                "model": estimate.model,
                "purpose": estimate.purpose,
                "usd": estimate.usd,
                "created_at": now,
                "expires_at": now + EXPIRES,
            }
            await set_aside(session, aside)
        self._whose[reservation] = estimate.tenant_id
        return reservation

    async def settle(self, reservation: UUID, usage: Usage, usd: Decimal | None) -> None:
        """The tokens stand in the ledger; here only the money counts."""
        async with self._sessions.tenant(self._whose.pop(reservation)) as session:
            await settle(session, reservation, usd)


async def _check(
    session: AsyncSession, budgets: Sequence[BudgetRow], estimate: Estimate, now: datetime
) -> None:
    for budget in budgets:
        if estimate.usd is None:
            if not budget.allow_unknown_price:
                raise LLMUnpriced(
                    f"Nobody knows what {estimate.model} of {estimate.provider} costs, and the"
                    f" budget of the {budget.period} does not allow that.",
                    figures={"period": budget.period, "model": estimate.model},
                )
            continue
        spent = await sum_spent(session, start_of(budget.period, now))
        if sum(spent) + estimate.usd > budget.usd:
            raise LLMOverBudget(
                f"The budget of the {budget.period} is spent: ${budget.usd:f}.",
                retry_after=(end_of(budget.period, now) - now).total_seconds(),
                figures=figures(budget, spent, now) | {"asked_usd": float(estimate.usd)},
            )


def figures(budget: BudgetRow, spent: Spent, now: datetime) -> dict[str, object]:
    """A budget as it stands; US dollars."""
    return {
        "period": budget.period,
        "usd": float(budget.usd),
        "spent_usd": float(spent.settled),
        "reserved_usd": float(spent.reserved),
        "left_usd": float(max(budget.usd - sum(spent), 0)),
        "resets_at": end_of(budget.period, now).isoformat(),
    }


def start_of(period: str, now: datetime) -> datetime:
    """When the day or month of `now` began, in UTC."""
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day if period == "day" else day.replace(day=1)


def end_of(period: str, now: datetime) -> datetime:
    """When the next one begins."""
    start = start_of(period, now)
    if period == "day":
        return start + timedelta(days=1)
    return (start + timedelta(days=32)).replace(day=1)
