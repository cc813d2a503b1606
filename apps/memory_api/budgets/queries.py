"""Statements on budgets, reservations, totals, alerts and model calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, delete, func, insert, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from memory_api.budgets.tables import (
    BudgetAlertRow,
    BudgetReservationRow,
    BudgetRow,
    BudgetTotalRow,
    LLMCallRow,
)
from memory_api.core.db import current_tenant_id
from memory_api.core.statements import compile_statement, fetch_rows, load_statement
from memory_api.core.tenant_locks import acquire_tenant_lock

MAX_EXPIRED_PER_STATEMENT = 100

_BUDGETS = compile_statement(
    select(BudgetRow)
    .where(BudgetRow.tenant_id == bindparam("tenant"))
    .order_by(BudgetRow.period, BudgetRow.project_id, BudgetRow.purpose)
)
_INSERT_CALL = compile_statement(upsert(LLMCallRow).on_conflict_do_nothing())
_RESERVATION_COLUMNS = (
    *("tenant_id", "id", "run_id", "project_id", "provider", "model", "purpose"),
    *("amount_usd", "amount_tokens", "created_at", "expires_at"),
)
_INSERT_RESERVATION = compile_statement(insert(BudgetReservationRow), *_RESERVATION_COLUMNS)
_ADD_TO_TOTALS = load_statement("budgets/queries.sql", "add_to_totals")
_SETTLE_RESERVATION = load_statement("budgets/queries.sql", "settle_reservation")


class TotalKey(NamedTuple):
    """One row of `budget_totals`. '' in `project_id` and `purpose` means all of them."""

    period: str
    starts_on: date
    project_id: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Spending:
    """What calls cost: `spent` for finished calls, `reserved` for calls in progress."""

    spent_usd: Decimal = Decimal(0)
    reserved_usd: Decimal = Decimal(0)
    spent_tokens: int = 0
    reserved_tokens: int = 0

    def negated(self) -> Spending:
        return Spending(
            -self.spent_usd, -self.reserved_usd, -self.spent_tokens, -self.reserved_tokens
        )

    def plus(self, other: Spending) -> Spending:
        return Spending(
            self.spent_usd + other.spent_usd,
            self.reserved_usd + other.reserved_usd,
            self.spent_tokens + other.spent_tokens,
            self.reserved_tokens + other.reserved_tokens,
        )


class ReservedCost(NamedTuple):
    """What a reservation was for before it was settled."""

    project_id: str
    purpose: str
    amount_usd: Decimal | None
    amount_tokens: int
    is_expired: bool
    created_at: datetime


async def list_budgets(
    session: AsyncSession, *, project_id: str | None = None
) -> Sequence[BudgetRow]:
    """Budgets by period, project and purpose: all of the tenant, or those of one project."""
    found = await fetch_rows(session, _BUDGETS, {"tenant": current_tenant_id(session)})
    rows = [BudgetRow(**row) for row in found]
    return rows if project_id is None else [row for row in rows if row.project_id == project_id]


async def lock_budgets(session: AsyncSession) -> None:
    """Until the end of the transaction, nobody else replaces the budgets of the tenant."""
    await acquire_tenant_lock(session, "budgets")


async def replace_budgets(session: AsyncSession, rows: Sequence[BudgetRow]) -> None:
    """Replaces all budgets of the tenant."""
    await lock_budgets(session)
    await session.execute(
        delete(BudgetRow).where(BudgetRow.tenant_id == current_tenant_id(session))
    )
    session.add_all(rows)
    await session.flush()


async def add_to_totals(
    session: AsyncSession, changes: Mapping[TotalKey, Spending]
) -> dict[TotalKey, Spending]:
    """Add amounts, which may be negative, to totals. Returns the new totals.

    Call it once in a transaction: the rows are locked in the order of their keys, so concurrent
    calls cannot deadlock.
    """
    rows = [key._asdict() | asdict(changes[key]) for key in sorted(changes)]
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    parameters = {"tenant": current_tenant_id(session), **columns}
    return _to_totals(await fetch_rows(session, _ADD_TO_TOTALS, parameters)) if rows else {}


_TOTAL_COLUMNS = (
    BudgetTotalRow.period,
    BudgetTotalRow.starts_on,
    BudgetTotalRow.project_id,
    BudgetTotalRow.purpose,
    BudgetTotalRow.spent_usd,
    BudgetTotalRow.reserved_usd,
    BudgetTotalRow.spent_tokens,
    BudgetTotalRow.reserved_tokens,
)


def _to_totals(rows: Iterable[Any]) -> dict[TotalKey, Spending]:
    return {TotalKey(*row[:4]): Spending(*row[4:]) for row in rows}


async def load_totals(session: AsyncSession, keys: Sequence[TotalKey]) -> dict[TotalKey, Spending]:
    """The totals of these keys. A key without calls is missing."""
    if not keys:
        return {}
    columns = (
        BudgetTotalRow.period,
        BudgetTotalRow.starts_on,
        BudgetTotalRow.project_id,
        BudgetTotalRow.purpose,
    )
    query = select(*_TOTAL_COLUMNS).where(
        BudgetTotalRow.tenant_id == current_tenant_id(session), tuple_(*columns).in_(list(keys))
    )
    return _to_totals(await session.execute(query))


async def insert_llm_call(session: AsyncSession, row: Mapping[str, Any]) -> None:
    """Does nothing for a call that is recorded already: its commit may not have been answered."""
    await fetch_rows(session, _INSERT_CALL, row)


async def insert_reservation(session: AsyncSession, row: Mapping[str, Any]) -> None:
    await fetch_rows(session, _INSERT_RESERVATION, row)


async def settle_reservation(
    session: AsyncSession, reservation_id: UUID, *, usd: Decimal | None, tokens: int
) -> ReservedCost | None:
    """Replace the amount of a reservation. Returns it as it was; None if it is settled already, but
    not because it expired.
    """
    parameters = {
        "tenant": current_tenant_id(session),
        "reservation": reservation_id,
        "usd": usd,
        "tokens": tokens,
    }
    rows = await fetch_rows(session, _SETTLE_RESERVATION, parameters)
    return ReservedCost(*rows[0]) if rows else None


async def update_reservation(
    session: AsyncSession,
    reservation_id: UUID,
    *,
    usd: Decimal | None,
    tokens: int,
    is_expired: bool = False,
) -> None:
    await session.execute(
        update(BudgetReservationRow)
        .where(
            BudgetReservationRow.tenant_id == current_tenant_id(session),
            BudgetReservationRow.id == reservation_id,
        )
        .values(amount_usd=usd, amount_tokens=tokens, settled_at=func.now(), is_expired=is_expired)
        .execution_options(synchronize_session=False)
    )


async def lock_expired_reservations(
    session: AsyncSession, now: datetime
) -> Sequence[BudgetReservationRow]:
    """Reservations that expired before they were settled, at most `MAX_EXPIRED_PER_STATEMENT`."""
    query = (
        select(BudgetReservationRow)
        .where(
            BudgetReservationRow.tenant_id == current_tenant_id(session),
            BudgetReservationRow.settled_at.is_(None),
            BudgetReservationRow.expires_at <= now,
        )
        .limit(MAX_EXPIRED_PER_STATEMENT)
        .with_for_update(skip_locked=True)
    )
    return (await session.scalars(query)).all()


async def insert_alerts(
    session: AsyncSession, rows: Sequence[Mapping[str, Any]]
) -> Sequence[BudgetAlertRow]:
    """Insert the alerts that are new. Returns those."""
    statement = upsert(BudgetAlertRow).values(list(rows)).on_conflict_do_nothing()
    return (await session.scalars(statement.returning(BudgetAlertRow))).all()


async def list_alerts(
    session: AsyncSession, since: date, *, project_id: str | None = None
) -> Sequence[BudgetAlertRow]:
    """The alerts of the periods that started at `since` or later."""
    query = select(BudgetAlertRow).where(
        BudgetAlertRow.tenant_id == current_tenant_id(session), BudgetAlertRow.starts_on >= since
    )
    if project_id is not None:
        query = query.where(BudgetAlertRow.project_id == project_id)
    return (await session.scalars(query.order_by(BudgetAlertRow.created_at))).all()
