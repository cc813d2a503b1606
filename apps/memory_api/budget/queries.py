"""Statements on budgets, reservations and the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Date, bindparam, cast, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from apps.memory_api.budget.tables import BudgetRow, LLMCall, Reservation
from apps.memory_api.core.db import tenant_of

_BUDGETS = (
    select(BudgetRow).where(BudgetRow.tenant_id == bindparam("tenant")).order_by(BudgetRow.period)
)
_BUDGETS_LOCKED = _BUDGETS.with_for_update()
_SETTLE = (
    update(Reservation)
    .where(
        Reservation.tenant_id == bindparam("tenant"),
        Reservation.id == bindparam("reservation"),
        Reservation.settled_at.is_(None),
    )
    .values(usd=bindparam("cost"), settled_at=func.now())
    .returning(Reservation.id)
    .execution_options(synchronize_session=False)
)


_RECORD = insert(LLMCall.__table__)  # pyright: ignore[reportArgumentType] - a Table
_SET_ASIDE = insert(Reservation.__table__)  # pyright: ignore[reportArgumentType] - a Table


class Spent(NamedTuple):
    """US dollars: of calls that are over, and set aside for those under way."""

    settled: Decimal
    reserved: Decimal


async def list_budgets(session: AsyncSession, *, lock: bool = False) -> Sequence[BudgetRow]:
    """By period. Locked, nobody else of the tenant reserves meanwhile."""
    query = _BUDGETS_LOCKED if lock else _BUDGETS
    return (await session.scalars(query, {"tenant": tenant_of(session)})).all()


async def replace_budgets(session: AsyncSession, rows: Sequence[BudgetRow]) -> None:
    """These and no others from now on."""
    await session.execute(delete(BudgetRow).where(BudgetRow.tenant_id == tenant_of(session)))
    session.add_all(rows)
    await session.flush()


async def sum_spent(session: AsyncSession, since: datetime) -> Spent:
    """What was spent and is set aside of calls that began at `since` or later."""
    settled = Reservation.settled_at.is_not(None)
    waiting = Reservation.settled_at.is_(None) & (Reservation.expires_at > func.now())
    row = await session.execute(
        select(
            func.coalesce(func.sum(Reservation.usd).filter(settled), 0),
            func.coalesce(func.sum(Reservation.usd).filter(waiting), 0),
        ).where(Reservation.tenant_id == tenant_of(session), Reservation.created_at >= since)
    )
    return Spent(*row.one())


async def record_call(session: AsyncSession, row: Mapping[str, Any]) -> None:
    """A row of the ledger."""
    await session.execute(_RECORD, row)


async def set_aside(session: AsyncSession, row: Mapping[str, Any]) -> None:
    """A reservation."""
    await session.execute(_SET_ASIDE, row)


async def settle(session: AsyncSession, reservation_id: UUID, usd: Decimal | None) -> bool:
    """Write down what a call did cost; False when that was done before."""
    given = {"tenant": tenant_of(session), "reservation": reservation_id, "cost": usd}
    return await session.scalar(_SETTLE, given) is not None


_BY: dict[str, ColumnElement[Any] | InstrumentedAttribute[str]] = {
    "day": cast(func.timezone("UTC", LLMCall.created_at), Date),
    "model": LLMCall.model,
    "provider": LLMCall.provider,
    "purpose": LLMCall.purpose,
}


async def sum_usage(
    session: AsyncSession, by: Sequence[str], since: datetime, until: datetime | None
) -> Sequence[dict[str, Any]]:
    """The ledger's sums, a row per combination of `by` (day, model, provider, purpose)."""
    keys = [_BY[name].label(name) for name in by]
    query = (
        select(
            *keys,
            func.count().label("calls"),
            func.count().filter(LLMCall.status != "ok").label("failed"),
            func.count().filter(LLMCall.usd.is_(None), LLMCall.status == "ok").label("unpriced"),
            *(
                func.coalesce(func.sum(column), 0).label(column.key)
                for column in (
                    LLMCall.input_tokens,
                    LLMCall.cached_tokens,
                    LLMCall.cache_write_tokens,
                    LLMCall.output_tokens,
                    LLMCall.usd,
                )
            ),
        )
        .where(LLMCall.tenant_id == tenant_of(session), LLMCall.created_at >= since)
        .where(LLMCall.created_at < (until or datetime.max.replace(tzinfo=UTC)))
        .group_by(*keys)
        .order_by(*keys)
    )
    return [dict(row) for row in (await session.execute(query)).mappings()]
